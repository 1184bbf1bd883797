import resource

from app.worker.run import raise_file_limit


def test_files_for_many_lanes() -> None:
    """A shell's 1,024 open files are less than a hundred lanes need, where the system would give more."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft, hard = before[1] - 1, before[1]
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        raise_file_limit()
        after = resource.getrlimit(resource.RLIMIT_NOFILE)
        raise_file_limit()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)

    assert after == (hard, hard)
