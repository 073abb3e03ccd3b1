// Sends a message and receives it, by the C interface of RocketMQ's C++ client.
//
// The declarations are the part of that interface which is used here. A development
// package of rocketmq-client-cpp has them in CProducer.h, CMessage.h, CPushConsumer.h.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>

extern "C" {
struct CProducer;
struct CPushConsumer;
struct CMessage;
struct CMessageExt;
struct CSendResult {
    int status;
    char message_id[256];
    long long offset;
};

CProducer *CreateProducer(const char *group);
int SetProducerNameServerAddress(CProducer *, const char *address);
int StartProducer(CProducer *);
int ShutdownProducer(CProducer *);
int DestroyProducer(CProducer *);
int SendMessageSync(CProducer *, CMessage *, CSendResult *);

CMessage *CreateMessage(const char *topic);
int SetMessageTags(CMessage *, const char *tags);
int SetMessageKeys(CMessage *, const char *keys);
int SetMessageBody(CMessage *, const char *body);
int DestroyMessage(CMessage *);

CPushConsumer *CreatePushConsumer(const char *group);
int SetPushConsumerNameServerAddress(CPushConsumer *, const char *address);
int Subscribe(CPushConsumer *, const char *topic, const char *expression);
int RegisterMessageCallback(CPushConsumer *, int (*)(CPushConsumer *, CMessageExt *));
int StartPushConsumer(CPushConsumer *);
int ShutdownPushConsumer(CPushConsumer *);
int DestroyPushConsumer(CPushConsumer *);
const char *GetMessageBody(CMessageExt *);
}

namespace {

constexpr const char *TEXT = "hello from C++";
constexpr int CONSUMED = 0;
std::promise<void> arrived;
bool has_arrived = false;

void must(int status, const char *what) {
    if (status != 0) {
        std::fprintf(stderr, "%s failed: %d\n", what, status);
        std::exit(1);
    }
}

void send(const char *name_server) {
    CProducer *producer = CreateProducer("hello-cpp-producer");
    SetProducerNameServerAddress(producer, name_server);
    must(StartProducer(producer), "StartProducer");
    CMessage *message = CreateMessage("Hello");
    SetMessageTags(message, "greeting");
    SetMessageKeys(message, "hello-1");
    SetMessageBody(message, TEXT);
    CSendResult result = {};
    must(SendMessageSync(producer, message, &result), "SendMessageSync");
    std::printf("sent %s\n", result.message_id);
    DestroyMessage(message);
    ShutdownProducer(producer);
    DestroyProducer(producer);
}

int receive(CPushConsumer *, CMessageExt *message) {
    if (!has_arrived && std::strcmp(GetMessageBody(message), TEXT) == 0) {
        std::printf("received: %s\n", TEXT);
        has_arrived = true;
        arrived.set_value();
    }
    return CONSUMED;
}

}  // namespace

int main() {
    const char *set = std::getenv("NAMESRV_ADDR");
    const char *name_server = set ? set : "127.0.0.1:9876";
    send(name_server);

    CPushConsumer *consumer = CreatePushConsumer("hello-cpp-consumer");
    SetPushConsumerNameServerAddress(consumer, name_server);
    Subscribe(consumer, "Hello", "*");
    RegisterMessageCallback(consumer, receive);
    must(StartPushConsumer(consumer), "StartPushConsumer");
    auto state = arrived.get_future().wait_for(std::chrono::seconds(30));
    ShutdownPushConsumer(consumer);
    DestroyPushConsumer(consumer);
    if (state != std::future_status::ready) {
        std::fprintf(stderr, "no message came in 30 s\n");
        return 1;
    }
    return 0;
}
