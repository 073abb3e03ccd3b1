"""The answers to sends, from the results of puts.

Every answer carries MSG_REGION and TRACE_ON, which the clients' tracing reads.
"""

from typing import Final

from rmq.plugin import BatchPutResult, BrokerContext, Held, Later, PutResult, PutStatus
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.properties import MSG_REGION, TRACE_ON


class SendAnswers:
    """Builds the answers; by the code of an answer, a producer decides whether to try
    another broker.
    """

    def __init__(self, broker: BrokerContext) -> None:
        config = broker.config
        self.facts: Final = {
            MSG_REGION: config.region_id,
            TRACE_ON: "true" if config.trace_on else "false",
        }
        self._durability = broker.durability
        self._topics = broker.topics
        self._name_servers = broker.name_servers
        self._is_sync_flush = broker.store_config.is_sync_flush
        illegal = (
            ResponseCode.MESSAGE_ILLEGAL,
            "the message is illegal, maybe msg body or properties length not matched. "
            f"msg body length limit {broker.store_config.max_message_size}B, "
            "msg properties length limit 32KB.",
        )
        self._refusals = {
            PutStatus.MESSAGE_ILLEGAL: illegal,
            PutStatus.PROPERTIES_SIZE_EXCEEDED: illegal,
            PutStatus.CREATE_MAPPED_FILE_FAILED: (
                ResponseCode.SYSTEM_ERROR,
                "create mapped file failed, server is busy or broken.",
            ),
            PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED: (
                ResponseCode.LMQ_QUOTA_EXCEEDED,
                "[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]lmq consume queue num exceeded.",
            ),
            PutStatus.OS_PAGE_CACHE_BUSY: (
                ResponseCode.SYSTEM_BUSY,
                "[PC_SYNCHRONIZED]broker busy, start flow control for a while: the "
                f"disk of {broker.store_config.root_dir} is slower than the senders",
            ),
        }

    def is_settled(self, topic: str) -> bool:
        """Whether the topic is as durable as its messages, and name servers have it."""
        return self._is_durable(topic) and self._name_servers.is_propagated(topic)

    def _is_durable(self, topic: str) -> bool:
        return not self._is_sync_flush or not self._topics.is_unsaved(topic)

    def answer_stored(
        self,
        request: Command,
        fields: dict[str, str],
        result: PutResult | BatchPutResult,
        wait: str | None,
        topic: str,
    ) -> Command | Held | Later:
        """Answer a stored message; if required, wait first until disk and slaves have
        it.

        A send may have created its topic: then the answer also waits until the topic is
        durable and name servers have it. `wait` is the message's property WAIT: whether
        to wait for disk and slaves.
        """
        done = request.reply(ResponseCode.SUCCESS, ext_fields=fields)
        answer: Command | Held = done
        durability = self._durability
        is_async = wait is not None and wait.lower() != "true"
        if durability.senders_wait and not is_async:
            assert result.end_offset > 0, "a stored message ends somewhere"
            timeout_ms = durability.ack_timeout_ms
            answer = Held(done, result.end_offset, None, timeout_ms)
        return answer if self.is_settled(topic) else self._wait_settled(topic, answer)

    async def _wait_settled(self, topic: str, answer: Command | Held) -> Command | Held:
        if isinstance(answer, Held) and not self._is_durable(topic):
            answer = await self._topics.wait_saved(answer)
        return await self._name_servers.wait_propagated(answer, [topic])

    def answer_refused(self, request: Command, code: int, remark: str) -> Command:
        """Answer a send that failed a check."""
        return request.reply(code, remark, ext_fields=self.facts)

    def answer_not_stored(self, request: Command, status: PutStatus) -> Command:
        """Answer a send that the store refused."""
        if status is PutStatus.SERVICE_NOT_AVAILABLE:
            reason = self._durability.refuse_reason
            return self.answer_refused(
                request,
                ResponseCode.SERVICE_NOT_AVAILABLE,
                f"service not available now. {reason}",
            )
        code, remark = self._refusals[status]
        if status is PutStatus.CREATE_MAPPED_FILE_FAILED:
            remark = f"{remark} {self._durability.put_error}"
        return self.answer_refused(request, code, remark)
