"""install_command: how to install the libraries of an extra of rmq.

rmq is not published under its name: texts name the libraries, not `rmq[extra]`.
"""

import shlex


def install_command(extra: str) -> str:
    """Return the command; the metadata of the installed package has the libraries."""
    # imported on use: few commands lack a library
    from importlib.metadata import PackageNotFoundError, requires

    try:
        found = requires("rmq") or []
    except PackageNotFoundError:
        found = []
    libraries = [
        each.partition(";")[0].strip()
        for each in found
        if f'extra == "{extra}"' in each.replace("'", '"')
    ]
    names = " ".join(map(shlex.quote, libraries))
    return f"pip install {names or f'the libraries of the extra {extra}'}"
