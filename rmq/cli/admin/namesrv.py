"""Commands for name servers."""

import click

from rmq.cli.admin.base import Output, register_command
from rmq.cli.admin.brokers import parse_config
from rmq.client.admin import AdminClient
from rmq.protocol.codes import RequestCode


@register_command("getNamesrvConfig")
def get_namesrv_config(admin: AdminClient) -> Output:
    code = RequestCode.GET_NAMESRV_CONFIG
    found = {
        each: parse_config(admin.request(each, code).body)
        for each in admin.name_servers
    }
    return found[admin.name_servers[0]] if len(found) == 1 else dict(found)


@register_command("updateNamesrvConfig")
@click.option("-k", "--key", required=True)
@click.option("-v", "--value", required=True)
def update_namesrv_config(admin: AdminClient, key: str, value: str) -> Output:
    body = f"{key}={value}\n".encode()
    for each in admin.name_servers:
        admin.request(each, RequestCode.UPDATE_NAMESRV_CONFIG, body=body)
    return [f"update name server config success! {each}" for each in admin.name_servers]


@register_command("updateKvConfig")
@click.option("-s", "--namespace", required=True)
@click.option("-k", "--key", required=True)
@click.option("-v", "--value", required=True)
def update_kv_config(
    admin: AdminClient, namespace: str, key: str, value: str
) -> Output:
    fields = {"namespace": namespace, "key": key, "value": value}
    for each in admin.name_servers:
        admin.request(each, RequestCode.PUT_KV_CONFIG, fields)
    return ["create or update kv config to namespace success."]


@register_command("deleteKvConfig")
@click.option("-s", "--namespace", required=True)
@click.option("-k", "--key", required=True)
def delete_kv_config(admin: AdminClient, namespace: str, key: str) -> Output:
    for each in admin.name_servers:
        fields = {"namespace": namespace, "key": key}
        admin.request(each, RequestCode.DELETE_KV_CONFIG, fields)
    return ["delete kv config from namespace success."]


@register_command("wipeWritePerm")
@click.option("-b", "--brokerName", "broker", required=True)
def wipe_write_perm(admin: AdminClient, broker: str) -> Output:
    return _write_perm(
        admin, broker, RequestCode.WIPE_WRITE_PERM_OF_BROKER, "wipe", "wipeTopicCount"
    )


@register_command("addWritePerm")
@click.option("-b", "--brokerName", "broker", required=True)
def add_write_perm(admin: AdminClient, broker: str) -> Output:
    return _write_perm(
        admin, broker, RequestCode.ADD_WRITE_PERM_OF_BROKER, "add", "addTopicCount"
    )


def _write_perm(
    admin: AdminClient, broker: str, code: int, verb: str, field: str
) -> list[str]:
    lines = []
    for each in admin.name_servers:
        answer = admin.request(each, code, {"brokerName": broker})
        lines.append(
            f"{verb} write perm of broker[{broker}] in name server[{each}] OK, "
            f"{answer.ext_fields.get(field, '0')}"
        )
    return lines
