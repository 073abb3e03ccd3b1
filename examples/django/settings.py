"""Settings: the broker is in NAMESRV_ADDR."""

import os
from importlib.util import find_spec

SECRET_KEY = "only for this example"
USE_TZ = True
INSTALLED_APPS = ["rmq.integrations.django_app"]
if find_spec("django.tasks") is None:  # Django before 6.0
    INSTALLED_APPS.append("django_tasks")
TASKS = {
    "default": {
        "BACKEND": "rmq.integrations.django.RmqBackend",
        "QUEUES": ["default"],
        "OPTIONS": {
            "name_server": os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876"),
            "results": True,
        },
    }
}
