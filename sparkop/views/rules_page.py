"""docs/reference/rules.md, made of the rules themselves."""

from __future__ import annotations

from sparkop.engines.rules import Severity, all_rules

_HEAD = """\
# Rules
Written by `python -m sparkop.views.rules_page` from `sparkop/engines/rules*.py`; a test holds it to that.

`validate`, `diff` and `apply` look at these before a node is asked or changed. What refuses a spec ends in
exit code 65, with the place in the file. A rule is set aside by its name, with your reason, in the spec:

```yaml
rules:
  override:
    - id: sglang.chunk
      reason: measured here at 2048 for a week
```

| rule | for | a breach | why | instead | known from | can be set aside |
| --- | --- | --- | --- | --- | --- | --- |"""


def rules_page() -> str:
    """The page, in Markdown."""
    rows = [
        (
            f"`{rule.id}`",
            rule.applies_to,
            "warns" if rule.severity is Severity.WARNING else "refuses",
            rule.reason,
            rule.remedy,
            rule.source,
            "yes" if rule.overridable else "no",
        )
        for rule in all_rules()
    ]
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([_HEAD, *lines, ""])


if __name__ == "__main__":
    import sys

    sys.stdout.write(rules_page())
