"""Each view in a browser: full, empty, error, forbidden, partial, disconnected.

Each of these light and dark, 1920 and 390 pixels wide: no exception, nothing that the
policy refused, no violation for axe-core, no scrolling to the side: `make lab
NAME=console-test`.
"""

import json

import pytest
import trio

from rmq.cluster.sync_set import SyncSet
from rmq.cluster.term_state import TermState
from rmq.console import routes
from rmq.core.errors import PeerError
from rmq.observe import machine_views
from rmq.observe.java_broker import JavaBroker
from rmq.protocol.bodies.heartbeat import HeartbeatData
from rmq.protocol.codes import RequestCode
from rmq.testing import RawClient, running_node
from tests.console.browser import LOOKS, browser, missing
from tests.console.test_server import AUTH
from tests.console.world import HOSTILE, NOW, console, put
from tests.observe.test_monitor import ask

pytestmark = [
    pytest.mark.browser, pytest.mark.timeout(240),
    pytest.mark.skipif(missing() is not None, reason=missing() or ""),
]  # fmt: skip

LIVE = (
    "#/", "#/problems", "#/topics", "#/topic?name=order-paid", "#/groups",
    "#/group?name=search-indexer", "#/clients", "#/delays", "#/transactions",
    "#/brokers",
)  # fmt: skip
STILL = (
    "#/messages?topic=notify-email", "#/messages", "#/dead", "#/dead?name=warehouse",
    "#/message?topic=notify-email&queue=0&offset=0", "#/config", "#/audit",
)  # fmt: skip
NAMED = ("name=", "topic=")


async def in_browser(port, work):
    """Call `work` with a page in a thread."""

    def run():
        with browser(port) as page:
            return work(page)

    return await trio.to_thread.run_sync(run)


def check(page, place):
    """Look at a view in all looks."""
    page.settled()
    found = [f"{place}: {each}" for each in page.complaints()]
    for look in LOOKS:
        page.look(look)
        found += [f"{place}, {look}: {each}" for each in page.violations()]
        if page.is_wider_than_the_screen():
            found.append(f"{place}, {look}: wider than the screen")
        found += [f"{place}, {look}: {each} is broken" for each in page.broken_words()]
    if page.run("return window.owned ?? document.querySelector('main img')"):
        found.append(f"{place}: foreign markup became a part of the page")
    page.look("light")
    return found


def check_all(page, places=LIVE + STILL, then=lambda _page, _place: None):
    found = []
    for place in places:
        page.open(place)
        found += check(page, place)
        then(page, place)
    return found


LONG_ID = "10.120.33.17@18402#1795790654320195391"


async def test_a_narrow_window(tmp_path):
    """Words stay whole, ids are short, and the list of views shows the current one."""

    def look(page):
        page.look("narrow")
        found = []
        for place in (*LIVE, *STILL):
            page.open(place)
            page.settled()
            found += [f"{place}: {each}" for each in page.broken_words()]
            if not page.is_current_view_shown():
                found.append(f"{place}: the current view is hidden")
        page.open("#/clients")
        page.wait("document.querySelector('tbody tr') !== null")
        assert LONG_ID not in page.run("return main.innerText")
        return found

    beat = {
        "clientID": LONG_ID,
        "consumerDataSet": [{
            "groupName": "search-indexer", "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING", "subscriptionDataSet": [],
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        }],
    }  # fmt: skip
    async with (
        console(tmp_path, is_full=True) as (node, proxy),
        RawClient.connect(node.address) as client,
    ):
        body = HeartbeatData.decode(json.dumps(beat).encode()).encode()
        await ask(client, RequestCode.HEART_BEAT, body)
        assert await in_browser(proxy.port, look) == []


async def test_full(tmp_path):
    async with console(tmp_path, is_full=True) as (_, proxy):
        assert await in_browser(proxy.port, check_all) == []


async def test_empty(tmp_path):
    places = [place for place in LIVE + STILL if not any(n in place for n in NAMED)]
    async with console(tmp_path) as (_, proxy):
        work = await in_browser(proxy.port, lambda page: check_all(page, places))
        assert work == []


async def test_errors(tmp_path, monkeypatch):
    """Every view fails with a sentence, and a button to try again."""

    async def fail(*_):
        raise ZeroDivisionError

    def is_said(page, _):
        assert "This view failed" in page.run("return main.innerText")

    async with console(tmp_path, is_full=True) as (_, proxy):
        monkeypatch.setattr(routes, "show_view", fail)
        for view in routes.VIEWS:
            monkeypatch.setitem(routes.VIEWS, view, fail)
        monkeypatch.setattr(routes.Routes, "_config_rows", lambda _: 1 // 0)
        places = [p for p in LIVE + STILL if p not in ("#/audit", "#/messages")]
        found = await in_browser(
            proxy.port, lambda page: check_all(page, places, is_said)
        )
        assert found == []


async def test_forbidden(tmp_path):
    """Without a session every view is the sign-in, and its address stays."""

    def sign_in(page):
        found = check_all(
            page,
            then=lambda page, _: page.wait("document.querySelector('form.sign-in')"),
        )
        page.open("#/topics")
        page.wait("document.querySelector('form.sign-in')")
        user, password = page.driver.find_elements("css selector", ".sign-in input")
        user.send_keys("root")
        password.send_keys("wrong\n")
        page.wait("document.querySelector('.sign-in [role=alert]').textContent")
        found += check(page, "a wrong password")
        password.send_keys("secret-1\n")
        page.wait("document.querySelector('main h1')?.textContent === 'Topics'")
        return found

    async with console(tmp_path, AUTH) as (_, proxy):
        assert await in_browser(proxy.port, sign_in) == []


async def test_partial(tmp_path, monkeypatch):
    """A broker or name server that does not answer is a gap, not a blank page."""
    async with console(tmp_path, is_full=True) as (node, proxy):
        async with RawClient.connect(node.name_servers[0]) as client:
            body = b'{"topicConfigSerializeWrapper":{"topicConfigTable":{}}}'
            await ask(
                client, RequestCode.REGISTER_BROKER, body, brokerName="far",
                brokerAddr="127.0.0.1:1", clusterName="DefaultCluster",
                haServerAddr="", brokerId="0",
            )  # fmt: skip
            found = await in_browser(
                proxy.port,
                lambda page: check_all(
                    page, ["#/brokers", "#/"], lambda p, _: p.wait("main.innerText")
                ),
            )

            def gap(page):
                page.open("#/brokers")
                page.wait("main.innerText.includes('no answer')")

            await in_browser(proxy.port, gap)

        async def nobody(*_):
            raise PeerError("gone")

        monkeypatch.setattr(machine_views, "_cluster_rows", none)
        monkeypatch.setattr(node.broker.context.name_servers, "send_request", nobody)

        def no_name_server(page):
            page.open("#/brokers")
            page.wait("main.innerText.includes('No name server answers')")
            return check(page, "no name server")

        found += await in_browser(proxy.port, no_name_server)
        assert found == []


async def test_a_group_with_a_controller(tmp_path):
    """Its epoch, its set, and what each broker lacks."""
    async with console(tmp_path, is_full=True) as (node, proxy):
        broker = node.broker.context
        end = broker.store.log.end_offset
        of_master = SyncSet(
            1, (1, 2, 3), number=4, start=0, confirm_offset=0, max_lag_ms=15_000
        )
        of_master.report(2, end - 2_048, end=end, now_ms=0)
        confirm = broker.store.positions.visible_limit
        broker.replication.term_state = TermState(None, 7, None, confirm, of_master)

        def look(page):
            page.open("#/brokers")
            page.wait("main.innerText.includes('epoch 7, master')")
            text = page.run("return document.querySelector('main').innerText")
            assert "1 (this one)" in text
            assert "not connected" in text
            return check(page, "a group")

        assert await in_browser(proxy.port, look) == []


async def none(*_):
    return None


@pytest.mark.parametrize("is_of_java", [False, True], ids=["rmq", "java"])
async def test_another_broker(tmp_path, is_of_java):
    """It tells by itself, or is asked what a broker of Java tells."""
    async with console(tmp_path / "own", is_full=True) as (node, proxy):
        own = node.broker.context
        settings = {"namesrvAddr": node.name_servers[0], "brokerName": "other"}
        async with running_node(tmp_path / "other", settings) as other:
            their = other.broker.context
            their.groups.find("far-group")
            their.topics.ensure("Far", queues=1, perm=6)
            their.publish("Far", b"x", queue_id=0)
            their.offsets.commit("c", "far-group", "Far", 0, 0)
            their.monitor.sample()
            if is_of_java:
                told = JavaBroker("other", "c", own.clock.now_ms)
                own.monitor.other_brokers[their.address] = told

            def look(page):
                place = f"#/broker?address={their.address}"
                page.open(place)
                page.wait("main.innerText.includes('far-group')")
                page.wait("document.querySelector('main h1').textContent === 'other'")
                is_told = page.run("return main.innerText.includes('Java tells')")
                assert is_told == is_of_java
                found = check(page, place)
                page.open("#/broker?address=127.0.0.1:1")
                page.wait("main.innerText.includes('No other broker is called')")
                return found + check(page, "a broker that nobody knows")

            assert await in_browser(proxy.port, look) == []


async def test_disconnected(tmp_path):
    """What was seen stays, the page says since when, and comes back by itself."""
    async with console(tmp_path, is_full=True) as (_, proxy):

        def lose(page):
            found = []
            for place in LIVE:
                proxy.is_cut = False
                page.open(place)
                page.settled()
                page.wait("document.querySelector('#live').dataset.kind === 'live'")
                trio.from_thread.run_sync(proxy.cut)
                page.wait("document.querySelector('#lost') !== null", 7)
                found += check(page, f"{place} disconnected")
            proxy.is_cut = False
            page.wait("document.querySelector('#live').dataset.kind === 'live'")
            page.wait("document.querySelector('#lost') === null")
            return found

        found = await in_browser(proxy.port, lose)
        assert found == []


async def test_keys_and_hostile_names(tmp_path):
    def press(page):
        from selenium.webdriver.common.keys import Keys

        page.open("#/")
        page.settled()
        body = page.driver.find_element("tag name", "body")
        body.send_keys(Keys.TAB)
        assert page.run("return document.activeElement.className") == "skip"
        for key, place in zip("ptgcmdyxbfao", PLACES, strict=True):
            body.send_keys("g")
            body.send_keys(key)
            page.wait(f"location.hash === '{place}'")
        body.send_keys("t")
        assert page.run("return document.documentElement.dataset.theme") == "dark"
        body.send_keys("p")
        page.wait("document.querySelector('#live').dataset.kind === 'paused'")
        body.send_keys("p")
        body.send_keys("/")
        jump = page.driver.find_element("id", "jump")
        jump.send_keys("search-ind")
        page.wait("document.querySelector('#found li') !== null")
        jump.send_keys(Keys.ARROW_DOWN, Keys.ARROW_UP, Keys.ENTER)
        page.wait("location.hash.startsWith('#/topic?') ||"
                  " location.hash.startsWith('#/group?')")  # fmt: skip
        page.open("#/message?topic=notify-email&queue=0&offset="
                  + str(page.run("return 0")))  # fmt: skip
        page.open("#/messages?topic=notify-email&q=onerror")
        page.wait("document.querySelector('tbody tr') !== null")
        text = page.run("return main.innerText")
        assert "\\u{1b}" in text
        assert "\\u{202e}" in text
        page.run("document.querySelector('tbody a').click()")
        page.wait("document.querySelector('pre.message')?.textContent")
        body = page.run("return document.querySelector('pre.message').textContent")
        assert HOSTILE[:10] in body or "3c 69 6d 67" in body
        assert not page.run("return window.owned")
        page.open("#/messages?topic=order-paid&key=o-1")
        page.open("#/message?topic=order-paid&queue=0&offset=0")
        page.wait("document.querySelector('pre.message')?.textContent")
        body = page.run("return document.querySelector('pre.message').textContent")
        assert '"order": 4711003219288371205' in body
        return page.complaints()

    async with console(tmp_path, is_full=True) as (_, proxy):
        assert await in_browser(proxy.port, press) == []


async def test_topics_scroll_over_all(tmp_path):
    """Of 1,100 topics the page has some 60 rows; the last one is at its end."""
    rows = "[...document.querySelectorAll('tbody tr')]"
    first = f"{rows}[0].firstChild.textContent"
    last = f"{rows}.at(-1).firstChild.textContent"

    def scroll(page):
        page.open("#/topics?sort=name")
        page.settled()
        page.wait(f"{first} === 'notify-email'")
        assert page.run(f"return {rows}.length") == 60
        high = page.run("return document.documentElement.scrollHeight")
        assert 34_000 < high < 36_000
        page.run("scrollTo(0, 500 * 31)")
        page.wait(f"{first} > 'topic-3' && {first} < 'topic-5'")
        page.run("scrollTo(0, document.documentElement.scrollHeight)")
        page.wait(f"{last} === 'topic-999'")
        assert page.run(f"return {rows}.length") <= 61
        box = "document.querySelector('label.check input')"
        page.run(f"{box}.click()")
        page.wait("location.hash.includes('system=1')")
        page.wait(
            f"document.querySelector('label.check input').checked && {first} < 'A'"
        )
        page.run("document.querySelector('label.check input').click()")
        page.wait(f"{first} === 'notify-email'")
        return check(page, "all topics")

    async with console(tmp_path, is_full=True) as (node, proxy):
        for number in range(100, 1_119):
            node.broker.context.topics.ensure(f"topic-{number}", queues=1, perm=6)
        assert await in_browser(proxy.port, scroll) == []


async def test_what_the_views_draw(tmp_path):
    """Columns of what is due, the disk as a bar, shares, libraries, who is asked."""

    def text(page, place, ready):
        page.open(place)
        page.settled()
        page.wait(ready)
        return page.run("return document.querySelector('main').innerText")

    def look(page):
        bars = "document.querySelectorAll('.histogram li').length"
        delays = text(page, "#/delays", f"{bars} === 48")
        assert "come due within half an hour" in delays
        page.run("document.querySelector('.histogram li').focus()")
        shown = "getComputedStyle(document.activeElement.lastChild).display"
        assert page.run(f"return {shown}") == "block"
        used = "document.querySelector('.disk .used').style.width"
        brokers = text(page, "#/brokers", f"parseFloat({used}) > 0")
        assert "fsync p99" in brokers
        assert "an hour" in brokers or "log " in brokers
        dead = text(page, "#/dead?name=warehouse", "document.querySelector('.bar')")
        assert "paid" in dead
        widths = page.run(
            "return [...document.querySelectorAll('.bar')].map((b) => b.style.width)"
        )
        assert widths == ["100%", "50%"]
        half = text(page, "#/transactions", "document.querySelector('tbody tr')")
        assert "0 of 15" in half
        assert "nobody of this group is connected" in half
        clients = text(page, "#/clients", "document.querySelector('tbody tr')")
        assert "1 \u00d7 PYTHON 5.5.0" in clients
        start = text(page, "#/", "document.querySelector('.facts')")
        assert "99 of 100, last minute" in start
        assert "due" in start
        return page.complaints()

    timer = {"timerWheelEnable": "true"}
    async with console(tmp_path, timer, is_full=True) as (node, proxy):
        put(
            node.broker.context, "order-paid",
            TIMER_DELIVER_MS=str(NOW + 5 * 3_600_000), TIMER_DELAY_SEC="18000",
        )  # fmt: skip
        beat = {
            "clientID": "c1",
            "consumerDataSet": [{
                "groupName": "warehouse", "consumeType": "CONSUME_PASSIVELY",
                "messageModel": "CLUSTERING", "subscriptionDataSet": [],
                "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            }],
        }  # fmt: skip
        async with RawClient.connect(node.address) as client:
            body = HeartbeatData.decode(json.dumps(beat).encode()).encode()
            await ask(client, RequestCode.HEART_BEAT, body)
            assert await in_browser(proxy.port, look) == []


async def test_changes_are_dialogs(tmp_path):
    """What would happen, its command, the change, and what was replaced comes back."""

    def press(page):
        found = []
        for place, button, field, value in DIALOGS:
            page.open(place)
            page.settled()
            page.run(
                "[...document.querySelectorAll('main button')].find((each) =>"
                " each.textContent === arguments[0]).click()", button,
            )  # fmt: skip
            if button == "Send…":
                page.wait("document.querySelector('dialog [role=alert]').textContent"
                          ".includes('needs a body')")  # fmt: skip
            else:
                page.wait("document.querySelector('dialog .would li') !== null")
            for look in LOOKS:
                page.look(look)
                found += [f"{button}, {look}: {each}" for each in page.violations()]
            page.look("light")
            if field:
                node = page.driver.find_element("css selector", f"dialog {field}")
                page.run("arguments[0].value = arguments[1]; arguments[0]"
                         ".dispatchEvent(new Event('input', {bubbles: true}))",
                         node, value)  # fmt: skip
            page.wait("!document.querySelector('dialog .main').disabled")
            assert page.run("return document.querySelector('dialog code').textContent")
            page.run("document.querySelector('dialog .main').click()")
            page.wait("document.querySelector('dialog .quiet') !== null")
            found += [f"{button}: {each}" for each in page.violations()]
            if button == "Reset offsets…":
                page.run("document.querySelector('dialog .plain').click()")
                page.wait("document.querySelector('dialog h2')?.textContent ==="
                          " 'Put it back'")  # fmt: skip
                page.wait("!document.querySelector('dialog .main').disabled")
                page.run("document.querySelector('dialog .main').click()")
                page.wait("document.querySelector('dialog .quiet') !== null")
            found += page.complaints()
        return found

    settings = {"rmq.consoleWrite": "true"}
    async with console(tmp_path, settings, is_full=True) as (node, proxy):
        broker = node.broker.context
        for group in ("warehouse", "search-indexer"):
            broker.groups.find(group)
        before = dict(broker.offsets.queues("search-indexer", "search-index"))
        assert await in_browser(proxy.port, press) == []
        after = dict(broker.offsets.queues("search-indexer", "search-index"))
        assert after == before
        assert broker.topics.get("order-paid").read_queue_nums == 17
        actions = [change.action for change in broker.audit.all()]
        assert actions[:5] == [
            "SEND_MESSAGE", "UPDATE_AND_CREATE_TOPIC",
            "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP", "RESEND_DEAD_LETTERS",
            "RESEND_DEAD_LETTERS",
        ]  # fmt: skip


async def test_read_only_stops_at_the_last_step(tmp_path):
    def press(page):
        page.open("#/topic?name=order-paid")
        page.settled()
        page.run("[...document.querySelectorAll('main button')]"
                 ".find((each) => each.textContent === 'Send…').click()")  # fmt: skip
        page.wait("document.querySelector('dialog [role=alert]').textContent")
        assert page.run("return document.querySelector('dialog .main').disabled")
        return page.violations() + page.complaints()

    async with console(tmp_path, is_full=True) as (_, proxy):
        assert await in_browser(proxy.port, press) == []


DIALOGS = (
    ("#/topic?name=order-paid", "Send…", "label:last-child textarea", "hello"),
    ("#/topic?name=order-paid", "Settings…", "input", "17"),
    ("#/group?name=warehouse", "Settings…", "input", "3"),
    ("#/dead?name=warehouse", "Send all again…", "", ""),
    ("#/dead?name=warehouse", "these…", "", ""),
    ("#/group?name=search-indexer", "Reset offsets…", "", ""),
    ("#/group?name=search-indexer", "Put back…", "", ""),
)  # fmt: skip
PLACES = (
    "#/problems", "#/topics", "#/groups", "#/clients", "#/messages", "#/dead",
    "#/delays", "#/transactions", "#/brokers", "#/config", "#/audit", "#/",
)  # fmt: skip
