"""Requests 17, 18, 21, 202, 215, 305, 351 and 513: tools show and change topics."""

from collections.abc import Mapping
from typing import Final

import trio

from rmq.plugin import (
    BrokerContext,
    Connection,
    Later,
    QueueOffset,
    RequestRejected,
    TurnTaker,
    join_text,
)
from rmq.protocol.bodies.common import TopicList
from rmq.protocol.bodies.queue_mapping import TopicQueueMappingDetail
from rmq.protocol.bodies.statistics import TOPIC_PUT_NUMS
from rmq.protocol.bodies.topics import (
    CreateTopicListRequestBody,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
    TopicConfigAndQueueMapping,
    TopicOffset,
    TopicStatsTable,
)
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.encoded_members import fill
from rmq.protocol.headers.admin import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    GetAllTopicConfigRequestHeader,
    GetAllTopicConfigResponseHeader,
    GetTopicConfigRequestHeader,
    GetTopicStatsInfoRequestHeader,
)
from rmq.protocol.topics import validate_topic
from rmq_plugins.admin.attributes import MESSAGE_TYPE, change_attributes
from rmq_plugins.admin.cleaning import record_deletion
from rmq_plugins.admin.paging import page
from rmq_plugins.admin.queue_tables import read_queue_members

FILTER_TYPES: Final = ("SINGLE_TAG", "MULTI_TAG")
MAX_QUEUES: Final = 65_536
"""Maximum number of queues of a topic on one broker; tools and this broker iterate over
all of them.
"""

MAX_TOPICS_AT_ONCE: Final = 10_000
TOPICS_OF_A_TURN: Final = 20
"""Number of topics of a list between two turns of other tasks; each topic writes the
journal.
"""


class TopicHandler:
    """The topic part of Java's `AdminBrokerProcessor`."""

    def __init__(self, broker: BrokerContext) -> None:
        config = broker.config
        self._broker = broker
        self._topics = broker.topics
        self._mappings = broker.queue_mappings
        self._name_servers = broker.name_servers
        self._offsets = broker.offsets
        self._store = broker.store
        self._messages = broker.messages
        self._statistics = broker.statistics
        self._broker_name = config.broker_name
        self._config = config
        self._next_turn = broker.next_turn

    def update_topic(self, request: Command, connection: Connection) -> Later:
        """Create or change a topic."""
        header = request.header(CreateTopicRequestHeader)
        is_system = "true" if self._topics.is_system(header.topic) else "false"
        with self._statistics.topic_creations.time_block(is_system=is_system):
            self._topics.update(self._config_of(header))
        return self._wait_propagated(request.reply(), [header.topic])

    async def update_static_topic(
        self, request: Command, connection: Connection
    ) -> Command:
        """Create or change a static topic: its queues here, and their mapping."""
        header = request.header(CreateTopicRequestHeader)
        mapping = TopicQueueMappingDetail.decode(request.body)
        if mapping.topic != header.topic:
            raise _invalid(f"the mapping belongs to topic {mapping.topic}")
        config = self._config_of(header)
        self._mappings.put(mapping, force=bool(header.force))
        self._topics.update(config, always=True)
        await self._mappings.save()
        return await self._wait_propagated(request.reply(), [header.topic])

    def _config_of(self, header: CreateTopicRequestHeader) -> TopicConfig:
        if header.topic_filter_type not in FILTER_TYPES:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR,
                f"topicFilterType = [{header.topic_filter_type}] value invalid",
            )
        self._check_name(header.topic)
        current = self._topics.get(header.topic)
        config = TopicConfig(
            topic_name=header.topic,
            read_queue_nums=header.read_queue_nums,
            write_queue_nums=header.write_queue_nums,
            perm=header.perm,
            topic_filter_type=header.topic_filter_type,
            topic_sys_flag=header.topic_sys_flag or 0,
            order=header.order,
            attributes=change_attributes(
                current.attributes if current is not None else None, header.attributes
            ),
        )
        self._check_config(config)
        return config

    async def update_topics(self, request: Command, connection: Connection) -> Command:
        """Create or change several topics; refuse all if one is invalid."""
        configs = CreateTopicListRequestBody.decode(request.body).topic_config_list
        if len(configs) > MAX_TOPICS_AT_ONCE:
            raise _invalid(f"more than {MAX_TOPICS_AT_ONCE} topics in one request")
        with (
            self._statistics.topic_creations.time_block(is_system="false"),
            self._name_servers.collect_changes(),
        ):
            for step in self._check_and_merge, self._topics.update:
                for number, config in enumerate(configs, 1):
                    step(config)
                    if number % TOPICS_OF_A_TURN == 0:
                        await self._next_turn()
        names = [config.topic_name or "" for config in configs]
        return await self._wait_propagated(request.reply(), names)

    def _check_and_merge(self, config: TopicConfig) -> None:
        """Check a topic of a list, and merge its attributes with the current ones."""
        self._check_name(config.topic_name)
        current = self._topics.get(config.topic_name or "")
        config.attributes = change_attributes(
            current.attributes if current is not None else None,
            ",".join(
                f"{name}={value}" if value else name
                for name, value in config.attributes.items()
            ),
        )
        self._check_config(config)

    async def delete_topic(self, request: Command, connection: Connection) -> Command:
        """Delete a topic with its queues and committed offsets."""
        name = request.header(DeleteTopicRequestHeader).topic
        self._check_name(name)
        await record_deletion(self._broker, {name})
        self._mappings.delete(name)
        self._topics.delete(name)
        self._offsets.remove_topic(name)
        await trio.to_thread.run_sync(self._store.delete_topic(name))
        for _ in self._statistics.remove_topic(name):
            await self._next_turn()
        return await self._wait_propagated(request.reply(), [name])

    async def _wait_propagated(self, answer: Command, topics: list[str]) -> Command:
        """Return the answer when the changes of these topics are saved and the name
        servers know them.
        """
        saved = await self._topics.wait_saved(answer)
        return await self._name_servers.wait_propagated(saved, topics)

    async def list_topics(self, request: Command, connection: Connection) -> Command:
        """Answer the table of topics, or the page of the table that the header
        names.
        """
        topics: Mapping[str, TopicConfig] = self._topics.all()
        if not topics:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, "No topic in this broker")
        header = request.header(GetAllTopicConfigRequestHeader)
        body = TopicConfigAndMappingSerializeWrapper(
            data_version=self._topics.data_version,
            mapping_data_version=self._mappings.data_version,
            topic_queue_mapping_detail_map=self._mappings.all(),
        )
        if header.topic_seq is None:
            text = await self._topics.fill_document(body)
        else:
            some = page(topics, header.topic_seq, header.max_topic_num)
            body.topic_config_table = some
            static = body.topic_queue_mapping_detail_map
            body.topic_queue_mapping_detail_map = {
                name: mapping for name, mapping in static.items() if name in some
            }
            text = body.encode()
        return request.reply(
            header=GetAllTopicConfigResponseHeader(total_topic_num=len(topics)),
            body=text,
        )

    def list_system_topics(self, request: Command, connection: Connection) -> Command:
        """Answer the names of the broker's own topics."""
        names = [name for name in self._topics.all() if self._topics.is_system(name)]
        return request.reply(body=TopicList(topic_list=sorted(names)).encode())

    def get_topic(self, request: Command, connection: Connection) -> Command:
        """Answer the configuration of one topic, with its mapping if `lo` is true."""
        header = request.header(GetTopicConfigRequestHeader)
        name = header.topic
        config = self._topics.get(name)
        if config is None:
            raise RequestRejected(
                ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {name}"
            )
        mapping = self._mappings.get(name) if header.lo else None
        if mapping is not None:
            values = {each: getattr(config, each) for each in config.__struct_fields__}
            config = TopicConfigAndQueueMapping(**values, mapping_detail=mapping)
        return request.reply(body=config.encode())

    async def get_topic_stats(
        self, request: Command, connection: Connection
    ) -> Command:
        """Answer the offsets of all queues of a topic."""
        name = request.header(GetTopicStatsInfoRequestHeader).topic
        config = self._topics.get(name)
        if config is None:
            raise RequestRejected(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist"
            )
        turns = TurnTaker(self._next_turn)
        await turns.run_each(self._statistics.count_parts())
        rate = self._statistics.minute_rate(TOPIC_PUT_NUMS, name)
        document = TopicStatsTable(topic_put_tps=rate).encode()
        queues = await read_queue_members(
            self._broker_name,
            name,
            config.write_queue_nums,
            self._read_queue_stats,
            turns,
        )
        body = await join_text(fill(document, "offsetTable", queues))
        return request.reply(body=body)

    def _read_queue_stats(self, topic: str, queue_id: int) -> TopicOffset:
        messages = self._messages
        max_offset = messages.max_offset(topic, queue_id)
        last_ms = 0
        if max_offset > 0:
            last = QueueOffset(max_offset - 1)
            last_ms = max(0, messages.store_time_at(topic, queue_id, last))
        return TopicOffset(
            min_offset=max(0, messages.min_offset(topic, queue_id)),
            max_offset=max_offset,
            last_update_timestamp=last_ms,
        )

    def _check_name(self, name: str | None) -> None:
        """Refuse names that are illegal or belong to the broker itself."""
        validate_topic(name)
        assert name is not None, "a validated topic has a name"
        if self._topics.is_system(name):
            raise _invalid(f"The topic[{name}] is conflict with system topic.")

    def _check_config(self, config: TopicConfig) -> None:
        """Refuse values that would harm this broker."""
        counts = config.read_queue_nums, config.write_queue_nums
        if min(counts) < 0 or max(counts) > MAX_QUEUES:
            raise _invalid(
                f"topic {config.topic_name}: readQueueNums and writeQueueNums are "
                f"{counts[0]} and {counts[1]}, allowed are 0 to {MAX_QUEUES}"
            )
        if config.topic_filter_type not in FILTER_TYPES:
            raise _invalid(
                f"topic {config.topic_name}: topicFilterType = "
                f"[{config.topic_filter_type}] value invalid"
            )
        if (
            config.attributes.get(MESSAGE_TYPE) == "MIXED"
            and not self._config.enable_mixed_message_type
        ):
            raise _invalid("MIXED message type is not supported.")


def _invalid(remark: str) -> RequestRejected:
    return RequestRejected(ResponseCode.INVALID_PARAMETER, remark)
