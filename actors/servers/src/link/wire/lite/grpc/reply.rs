//! Converts a `ToolResponse` to the result that the HTTP binding would have.

use mgp_grpc::mcplite::{ResponseMeta, ResponseType, ToolResponse};
use mgp_json::{members, quote, render_object};
use mgp_protocol::refusal::Refusal;

use super::parse_partial;
use crate::link::Link;

/// Members of `_meta` that `meta` of the message defines.
const MESSAGE_META_MEMBERS: [&str; 4] = [
    "response_type",
    "promise_token",
    "timestamp",
    "processing_time_ms",
];

/// The meaning of a message of a stream.
pub(super) enum GrpcReply {
    /// A partial result, as JSON text.
    Partial(String),
    /// The result, or a promise update.
    Whole,
}

impl GrpcReply {
    pub(super) fn from_message(link: &Link, message: &ToolResponse) -> Result<Self, Refusal> {
        if message.meta.is_some() {
            return Ok(Self::Whole);
        }
        Ok(match parse_partial(&parse_result(link, message)?) {
            Some(partial) => Self::Partial(partial),
            None => Self::Whole,
        })
    }
}

/// The result, with `_meta` if the message has `meta`.
pub(super) fn render_result(link: &Link, message: &ToolResponse) -> Result<String, Refusal> {
    let result = parse_result(link, message)?;
    Ok(match &message.meta {
        Some(meta) => merge_meta(&result, meta),
        None => result,
    })
}

fn parse_result(link: &Link, message: &ToolResponse) -> Result<String, Refusal> {
    let Some(result) = &message.result else {
        return Ok("{}".to_owned());
    };
    let text = result.to_json(link.limits.max_frame);
    text.map_err(|why| {
        link.invalid_answer_refusal(&format!("its result cannot be converted to JSON: {why}"))
    })
}

/// Merges `meta` into the result's `_meta`; `meta` takes precedence, other members stay.
fn merge_meta(result: &str, meta: &ResponseMeta) -> String {
    let all = members(result).unwrap_or_default();
    let own = all.iter().find(|(name, _)| name == "_meta");
    let own = own.and_then(|(_, own)| members(own.get()));
    let other_members = own.unwrap_or_default().into_iter();
    let other_members = other_members.filter(|(name, _)| !MESSAGE_META_MEMBERS.contains(&&**name));
    let other_members: Vec<_> = other_members.collect();
    let other_members = other_members
        .iter()
        .map(|(name, value)| (&**name, value.get()));
    let members = meta_members(meta);
    let members = members.iter().map(|(name, json)| (*name, &**json));
    let meta = render_object(members.chain(other_members));
    let others = all.iter().filter(|(name, _)| name != "_meta");
    let others = others.map(|(name, value)| (&**name, value.get()));
    render_object(others.chain([("_meta", &*meta)]))
}

fn meta_members(meta: &ResponseMeta) -> Vec<(&'static str, String)> {
    let kind = match ResponseType::try_from(meta.response_type) {
        Ok(ResponseType::Answer) => "answer".to_owned(),
        Ok(ResponseType::Promise) => "promise".to_owned(),
        Ok(ResponseType::Elicitation) => "elicitation".to_owned(),
        Ok(ResponseType::Failure) => "failure".to_owned(),
        Err(_) => format!("number {}", meta.response_type),
    };
    let mut members = vec![("response_type", quote(&kind))];
    if !meta.promise_token.is_empty() {
        members.push(("promise_token", quote(&meta.promise_token)));
    }
    if meta.timestamp != 0 {
        members.push(("timestamp", meta.timestamp.to_string()));
    }
    if meta.processing_time_ms != 0 {
        members.push(("processing_time_ms", meta.processing_time_ms.to_string()));
    }
    members
}

#[cfg(test)]
mod tests {
    use super::*;

    /// LITE-056 to LITE-058: the message's own `meta` takes precedence; the input need may be in the result.
    #[test]
    fn message_meta_takes_precedence_over_result_meta() {
        let meta = ResponseMeta {
            response_type: ResponseType::Elicitation.into(),
            promise_token: String::new(),
            timestamp: 1_704_110_400_000,
            processing_time_ms: 7,
        };
        let result =
            r#"{"content":[],"_meta":{"response_type":"answer","elicitation":{"message":"m"}}}"#;
        assert_eq!(
            merge_meta(result, &meta),
            r#"{"content":[],"_meta":{"response_type":"elicitation","timestamp":1704110400000,"processing_time_ms":7,"elicitation":{"message":"m"}}}"#
        );
        let odd = ResponseMeta {
            response_type: 9,
            ..ResponseMeta::default()
        };
        assert_eq!(
            merge_meta("{}", &odd),
            r#"{"_meta":{"response_type":"number 9"}}"#
        );
    }
}
