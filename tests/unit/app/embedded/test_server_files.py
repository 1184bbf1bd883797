from app.embedded.server_files import server_properties


def test_values_as_java_reads_them() -> None:
    """A backslash is escaped and the file is Latin-1, as Java reads it. A caller's property replaces Ringfence's."""
    for value, written in (
        ("RULE:^.*$/$1/", "RULE:^.*$/$1/"),
        (r"C:\new", r"C:\\new"),
        ("  x ", r"\  x "),
        ('"\t"', r"\"\t\""),
        ("😀", r"\ud83d\ude00"),
        ("", ""),
    ):
        key = "auto.create.topics.enable"
        lines = server_properties("127.0.0.1", 20001, 20002, {key: value}).splitlines()

        assert [line for line in lines if line.startswith(key)] == [f"{key}={written}"]
