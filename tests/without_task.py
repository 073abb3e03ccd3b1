"""Runs functions of a trio program as if no task called them."""

import functools
import sys


def without_task(function):
    """Return the function, which has no current task while it runs."""

    @functools.wraps(function)
    def run(*args):
        context = sys.modules["trio._core._run"].GLOBAL_RUN_CONTEXT  # no public name
        task = vars(context).pop("task", None)
        try:
            return function(*args)
        finally:
            if task is not None:
                context.task = task

    return run
