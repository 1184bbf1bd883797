"""Asks all processes for their figures of the last hour or day."""

import asyncio
from urllib.parse import urlencode

from app.commands.status.lanes import ANSWER_LIMIT_S, fetch_document
from app.commands.status.model import Status
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.http import auth
from ringfence_kafka.page.history import Charts, Subject, merged


async def read_histories(settings: Settings, status: Status, span: str, subject: Subject = ()) -> Charts:
    """Return the figures of a subject, or of all, from processes that answer. Dead ones' past is lost."""
    webs = {worker.web for worker in status.workers if subject[:1] != ("consumers",)}
    webs |= {
        web
        for group in status.consumers
        if not subject or subject == ("consumers", group.consumer_group, group.address)
        for web in group.webs
    }
    async with auth.session(settings.app, ANSWER_LIMIT_S) as session:
        parameters = [("span", span), *(("of", part) for part in subject)]
        path = f"/history?{urlencode(parameters)}"
        answers = await asyncio.gather(
            *(fetch_document(session, settings.app, web, path) for web in webs if web)
        )
    return merged(span, [answer for answer in answers if isinstance(answer, dict) and "rows" in answer])
