import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.embedded.EmbeddedChannel;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.Supplier;
import org.apache.rocketmq.auth.authentication.model.Subject;
import org.apache.rocketmq.auth.authorization.builder.DefaultAuthorizationContextBuilder;
import org.apache.rocketmq.auth.authorization.chain.AclAuthorizationHandler;
import org.apache.rocketmq.auth.authorization.context.DefaultAuthorizationContext;
import org.apache.rocketmq.auth.authorization.enums.PolicyType;
import org.apache.rocketmq.auth.authorization.model.Acl;
import org.apache.rocketmq.auth.authorization.provider.AuthorizationMetadataProvider;
import org.apache.rocketmq.auth.config.AuthConfig;
import org.apache.rocketmq.broker.auth.converter.AclConverter;
import org.apache.rocketmq.remoting.netty.AttributeKeys;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestHeaderRegistry;
import org.apache.rocketmq.remoting.protocol.body.AclInfo;

/** Reads cases, a line each, and prints what Java's own classes answer to them. */
public class Decisions {
    public static class Rules implements AuthorizationMetadataProvider {
        static Acl acl;

        @Override public void initialize(AuthConfig config, Supplier<?> service) { }
        @Override public void shutdown() { }
        @Override public CompletableFuture<Void> createAcl(Acl a) { return null; }
        @Override public CompletableFuture<Void> deleteAcl(Subject s) { return null; }
        @Override public CompletableFuture<Void> updateAcl(Acl a) { return null; }
        @Override public CompletableFuture<Acl> getAcl(Subject s) {
            return CompletableFuture.completedFuture(acl);
        }
        @Override public CompletableFuture<List<Acl>> listAcl(String s, String r) {
            return null;
        }
    }

    public static void main(String[] arguments) throws Exception {
        AuthConfig config = new AuthConfig();
        config.setConfigName("decisions");
        config.setClusterName("DefaultCluster");
        config.setAuthorizationMetadataProvider(Rules.class.getName());
        RequestHeaderRegistry.getInstance().initialize();
        DefaultAuthorizationContextBuilder builder =
            new DefaultAuthorizationContextBuilder(config);
        AclAuthorizationHandler handler = new AclAuthorizationHandler(config);
        BufferedReader lines = new BufferedReader(
            new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println("answer " + JSON.toJSONString(
                answer(JSON.parseObject(line), builder, handler)));
        }
        System.exit(0);
    }

    static String answer(JSONObject given, DefaultAuthorizationContextBuilder builder,
        AclAuthorizationHandler handler) {
        Rules.acl = AclConverter.convertAcl(given.getObject("acl", AclInfo.class));
        for (org.apache.rocketmq.auth.authorization.model.Policy policy
            : Rules.acl.getPolicies()) {
            if (policy.getPolicyType() == null) {
                policy.setPolicyType(PolicyType.CUSTOM);
            }
        }
        ChannelInboundHandlerAdapter last = new ChannelInboundHandlerAdapter();
        EmbeddedChannel channel = new EmbeddedChannel(last);
        channel.attr(AttributeKeys.PROXY_PROTOCOL_ADDR).set(given.getString("source"));
        channel.attr(AttributeKeys.PROXY_PROTOCOL_PORT).set("40001");
        ChannelHandlerContext context = channel.pipeline().context(last);
        RemotingCommand request =
            RemotingCommand.createRequestCommand(given.getIntValue("code"), null);
        HashMap<String, String> fields = new HashMap<>();
        given.getJSONObject("fields").forEach((k, v) -> fields.put(k, (String) v));
        request.setExtFields(fields);
        String body = given.getString("body");
        request.setBody(body == null ? null : body.getBytes(StandardCharsets.UTF_8));
        try {
            for (DefaultAuthorizationContext each : builder.build(context, request)) {
                handler.handle(each, null).join();
            }
            return "";
        } catch (Throwable error) {
            Throwable cause = error;
            while (cause instanceof java.util.concurrent.CompletionException) {
                cause = cause.getCause();
            }
            return cause.getMessage();
        }
    }
}
