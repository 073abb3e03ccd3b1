"""A Java producer's header: scanned the first time, recognised ever after."""

from rmq._fastpath.reactor.template import Templates

HEADER = (
    b'{"code":310,"extFields":{"a":"please_rename_unique_group_name","b":"TopicTest",'
    b'"c":"TBW102","d":"4","e":"2","f":"0","g":"1700000000000","h":"0",'
    b'"i":"KEYS\\u0001k\\u0002UNIQ_KEY\\u00017F00000163D218B4\\u0002TAGS\\u0001A",'
    b'"j":"0","k":"false","m":"false"},"flag":0,"language":"JAVA","opaque":77,'
    b'"serializeTypeCurrentRPC":"JSON","version":513}'
)
NAMES = tuple("abcdefghijklm")


def bench_match(benchmark):
    templates = Templates(NAMES, ("b", "e", "g", "i"))
    assert not templates.read(HEADER)[0]
    assert benchmark(templates.read, HEADER)[0]
