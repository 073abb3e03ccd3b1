"""A project of Django with a task on rmq.

In one terminal `python manage.py rmqworker`, in another `python manage.py shell -c
"import shop; shop.main()"`.
"""

import os
import sys

from django.core.management import execute_from_command_line

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings")

if __name__ == "__main__":
    execute_from_command_line(sys.argv)
