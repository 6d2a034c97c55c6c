"""Uses the client that openapi-python-client made: the base URL, the folder it is in, and the token by the variable
`TOKEN`."""

import os
import sys

base, folder = sys.argv[1:]
sys.path.insert(0, folder)

from generated import AuthenticatedClient
from generated.api.default import redeem
from generated.api.it import it_echo, it_slow, it_structured_echo, it_test_elicitation
from generated.models import (
    FailedCall,
    ItEchoArguments,
    ItSlowArguments,
    ItStructuredEchoArguments,
    ItTestElicitationArguments,
    RedeemArguments,
    ToolAnswer,
    UnfinishedCall,
)

client = AuthenticatedClient(base_url=base, token=os.environ["TOKEN"])

answer = it_echo.sync(client=client, body=ItEchoArguments(text="hi"))
assert isinstance(answer, ToolAnswer) and answer.content[0].text == "hi", answer

answer = it_structured_echo.sync(client=client, body=ItStructuredEchoArguments(text="hi"))
assert answer.structured_content.text == "hi", answer

promise = it_slow.sync(client=client, body=ItSlowArguments(ms=100), prefer="respond-async")
assert isinstance(promise, UnfinishedCall) and promise.field_meta.response_type == "promise", promise
answer = promise
while isinstance(answer, UnfinishedCall):
    answer = redeem.sync(client=client, body=RedeemArguments(promise=answer.field_meta.promise_token))
assert answer.content[0].text == "slept", answer

asked = it_test_elicitation.sync(client=client, body=ItTestElicitationArguments(message="Who?"))
assert asked.field_meta.response_type == "elicitation", asked
again = ItTestElicitationArguments(message="Who?")
for name in asked.field_meta.elicitation.requested_schema["properties"]:
    again[name] = "ada@example.com"
answer = it_test_elicitation.sync(
    client=client, body=again, mcp_lite_continuation=asked.field_meta.continuation
)
assert "ada@example.com" in answer.content[0].text, answer

refused = redeem.sync(client=client, body=RedeemArguments(promise="guessed"))
assert isinstance(refused, FailedCall) and refused.error.code == -32602, refused
stranger = AuthenticatedClient(base_url=base, token="guessed")
refused = it_echo.sync_detailed(client=stranger, body=ItEchoArguments(text="hi"))
assert refused.status_code == 401 and isinstance(refused.parsed, FailedCall), refused
print("the client in Python calls, redeems, answers and is refused")
