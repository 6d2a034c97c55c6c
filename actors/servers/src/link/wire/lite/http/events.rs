//! The event stream that answers a call (§4.3): `message`, `done`, `error`, `heartbeat`.

use std::sync::Arc;

use mgp_json::{Splice, member, members, quote};
use mgp_protocol::jsonrpc::{ErrorObject, INTERNAL_ERROR};
use mgp_protocol::refusal::Refusal;
use mgp_transports::http::client::{EventsError, Response, read_events};
use serde_json::value::RawValue;

use crate::link::Link;
use crate::link::wire::lite::partials::PartialReporter;

/// Reads the stream to its `done`; the result may be any JSON.
pub(super) async fn read_result(
    link: &Arc<Link>,
    response: Response,
    partials: &mut PartialReporter<'_>,
) -> Result<String, Refusal> {
    let mut stream = read_events(response.body, link.limits.max_frame);
    // A whole stream is limited to the size of one message.
    let (mut partial_messages, mut bytes) = (Vec::new(), 0);
    loop {
        let event = match stream.next().await {
            Ok(Some(event)) => event,
            Ok(None) => return Err(link.lost_refusal("its stream ended without `done`")),
            Err(EventsError::TooLarge(_)) => return Err(link.too_large_refusal()),
            Err(EventsError::Broken(why)) => {
                return Err(link.lost_refusal(&format!("its stream broke: {why}")));
            }
        };
        partials.record_heartbeat();
        let data = std::str::from_utf8(&event.data)
            .map_err(|_| link.invalid_answer_refusal("an event of its stream is not UTF-8"))?;
        match event.event.as_deref() {
            None | Some("message") => {
                let Some(partial) = member(data, "partial") else {
                    continue;
                };
                bytes += partial.len();
                if bytes > link.limits.max_frame {
                    return Err(link.too_large_refusal());
                }
                partials.report(partial);
                partial_messages.push(partial.to_owned());
            }
            Some("done") => {
                stream.discard_rest();
                return Ok(assemble_result(data, &partial_messages));
            }
            Some("error") => return Err(error_refusal(link, data)),
            // Heartbeats, and events of later versions.
            Some(_) => {}
        }
    }
}

/// The result of `done`; if it has only `_meta`, as in A.4, the partial messages are the content.
fn assemble_result(data: &str, parts: &[String]) -> String {
    let data = match (member(data, "jsonrpc"), member(data, "result")) {
        (Some(_), Some(result)) => result,
        _ => data,
    };
    let Some(all) = members(data) else {
        return data.to_owned();
    };
    let whole = all.iter().any(|(name, _)| name != "_meta");
    if whole || parts.is_empty() {
        return data.to_owned();
    }
    let texts: Result<String, _> = parts
        .iter()
        .map(|part| serde_json::from_str::<String>(part))
        .collect();
    let content = match texts {
        Ok(text) => format!("[{}]", quote(&text)),
        Err(_) => format!("[{}]", parts.join(",")),
    };
    let mut splice = Splice::new(data);
    splice.insert_member(data, "content", &content);
    splice.finish().into_owned()
}

/// The refusal for the error of a stream: a JSON-RPC error object, or an answer with one (A-37).
fn error_refusal(link: &Link, data: &str) -> Refusal {
    let error = member(data, "error").unwrap_or(data);
    let whole = member(error, "code").is_some_and(|code| code.parse::<i64>().is_ok())
        && member(error, "message").is_some_and(|message| message.starts_with('"'));
    if let (true, Ok(error)) = (whole, RawValue::from_string(error.to_owned())) {
        return Refusal::Peer(error);
    }
    let text: String = data.chars().filter(|c| !c.is_control()).take(200).collect();
    let error = ErrorObject::new(INTERNAL_ERROR, format!("its stream failed: {text}"));
    match serde_json::value::to_raw_value(&error) {
        Ok(error) => Refusal::Peer(error),
        Err(_) => link.invalid_answer_refusal("its stream failed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// LITE-043, LITE-044: the partial messages are the content if `done` has none, and are not repeated if it
    /// has.
    #[test]
    fn partial_messages_are_content_if_done_has_none() {
        let parts = [r#""Quarterly ""#.to_owned(), r#""report""#.to_owned()];
        assert_eq!(
            assemble_result(r#"{"_meta":{"response_type":"answer"}}"#, &parts),
            r#"{"content":["Quarterly report"],"_meta":{"response_type":"answer"}}"#
        );
        let mixed = [r#"{"row":1}"#.to_owned(), "2".to_owned()];
        assert_eq!(
            assemble_result("{}", &mixed),
            r#"{"content":[{"row":1},2]}"#
        );
        let whole = r#"{"content":["all"],"_meta":{}}"#;
        assert_eq!(assemble_result(whole, &parts), whole);
        let framed = r#"{"jsonrpc":"2.0","id":1,"result":{"content":[]}}"#;
        assert_eq!(assemble_result(framed, &parts), r#"{"content":[]}"#);
        assert_eq!(assemble_result("{}", &[]), "{}");
    }
}
