"""RecentRoutes: one query at a time, answers of a limited age, no answer."""

import trio
from trio.testing import MockClock

from rmq.cluster.recent_routes import ASK_AGAIN_S, LIMIT_S, MAX_ROUTES, RecentRoutes
from rmq.core.errors import ConnectFailed
from rmq.protocol.bodies.route import TopicRouteData

AGE_S = 30.0


class NameServer:
    """Reports a new route at each query, or refuses, or is silent."""

    def __init__(self):
        self.queries = 0
        self.is_up = True
        self.pause_s = 0.0

    async def route(self, topic):
        self.queries += 1
        await trio.sleep(self.pause_s)
        if not self.is_up:
            raise ConnectFailed(topic)
        return TopicRouteData(order_topic_conf=f"{topic} {self.queries}")


def run(test):
    server = NameServer()
    routes = RecentRoutes(server.route)
    trio.run(test, server, routes, clock=MockClock(autojump_threshold=0))


async def text_of(routes, topic="T"):
    found = await routes.get(topic, AGE_S)
    return None if found is None else found.order_topic_conf


def test_a_route_has_a_limited_age():
    async def test(server, routes):
        assert await text_of(routes) == "T 1"
        await trio.sleep(AGE_S - 1)
        assert await text_of(routes) == "T 1"
        await trio.sleep(1)
        assert await text_of(routes) == "T 2"
        routes.forget_route("T")
        assert await text_of(routes) == "T 3"

    run(test)


def test_requests_for_one_topic_wait_for_one_query():
    async def test(server, routes):
        server.pause_s = 1
        async with trio.open_nursery() as nursery:
            for _ in range(9):
                nursery.start_soon(text_of, routes)
            nursery.start_soon(text_of, routes, "other")
        assert server.queries == 2

    run(test)


def test_the_last_route_stays_without_an_answer():
    async def test(server, routes):
        await text_of(routes)
        server.is_up = False
        await trio.sleep(AGE_S)
        assert await text_of(routes) == "T 1"
        assert await text_of(routes) == "T 1"
        assert server.queries == 2
        server.is_up = True
        await trio.sleep(ASK_AGAIN_S)
        assert await text_of(routes) == "T 3"

    run(test)


def test_a_silent_name_server_has_a_time_limit():
    async def test(server, routes):
        server.pause_s = 1_000
        begin_s = trio.current_time()
        assert await text_of(routes) is None
        assert trio.current_time() - begin_s == LIMIT_S
        assert await text_of(routes) is None
        assert server.queries == 1

    run(test)


def test_the_number_of_routes_is_limited():
    async def test(server, routes):
        for number in range(MAX_ROUTES + 1):
            await routes.get(str(number), AGE_S)
        queries = server.queries
        await routes.get(str(MAX_ROUTES), AGE_S)
        assert server.queries == queries
        await routes.get("0", AGE_S)
        assert server.queries == queries + 1

    run(test)
