//! Scans a broken message for its id, and whether it is a request.
//!
//! For an oversized message only one end is available; others are damaged somewhere.

use std::borrow::Cow;

use mgp_json::lookalike::are_alike;
use mgp_json::partial::members;
use serde_json::value::RawValue;

use super::RequestId;

/// The top-level members of a message, as far as they can be parsed from the start. The contents of
/// `params`, `result` and `error` are ignored.
#[derive(Debug, Default)]
pub struct PartialMessage {
    id: Option<RequestId>,
    /// Set if there are two different ids.
    has_conflicting_ids: bool,
    has_method: bool,
    method: Option<Box<str>>,
    is_response: bool,
}

impl PartialMessage {
    /// Scans a message or the start of one, in one pass; broken strings and numbers are tolerated.
    #[must_use]
    pub fn scan(text: &[u8]) -> Self {
        let mut scanned = Self::default();
        for (name, value, whole) in members(text) {
            scanned.record_member(&name, value, whole);
        }
        scanned
    }

    /// Records one member; a value that is not `whole` may be truncated.
    fn record_member(&mut self, name: &str, value: &[u8], whole: bool) {
        let is = |known| are_alike(name, known);
        if name == "id" && whole {
            let value = serde_json::from_slice::<&RawValue>(value).ok();
            let id = value.and_then(|id| RequestId::from_response_id(id.get()));
            self.has_conflicting_ids |= self.id.is_some() && self.id != id;
            self.id = id;
        }
        let is_method = is("method");
        if is_method && whole {
            let method = serde_json::from_slice::<Cow<'_, str>>(value).ok();
            self.method = method.map(Into::into);
        }
        self.has_method |= is_method || is("params");
        self.is_response |= is("result") || is("error");
    }

    /// The id, if there is exactly one.
    #[must_use]
    pub fn id(&self) -> Option<RequestId> {
        self.id.clone().filter(|_| !self.has_conflicting_ids)
    }

    /// Sets an id that was found elsewhere.
    #[must_use]
    pub fn with_id(mut self, id: RequestId) -> Self {
        self.id = Some(id);
        self
    }

    /// The method, if it could be parsed.
    #[must_use]
    pub fn method(&self) -> Option<&str> {
        self.method.as_deref()
    }

    /// True for a request or a notification, as far as known.
    #[must_use]
    pub fn has_method(&self) -> bool {
        self.has_method
    }

    /// True for an answer, as far as known.
    #[must_use]
    pub fn is_response(&self) -> bool {
        self.is_response && !self.has_method
    }
}

/// Finds the id at the end of a message.
#[must_use]
pub fn find_trailing_id(tail: &[u8]) -> Option<RequestId> {
    let tail = String::from_utf8_lossy(tail);
    let (_, after) = tail.trim_end().strip_suffix('}')?.rsplit_once("\"id\"")?;
    let id = after.trim_start().strip_prefix(':')?;
    let id: &RawValue = serde_json::from_str(id).ok()?;
    RequestId::from_json(id.get())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(head: &str) -> Option<String> {
        PartialMessage::scan(head.as_bytes())
            .id()
            .map(|id| id.as_json().to_owned())
    }

    fn end(tail: &str) -> Option<String> {
        find_trailing_id(tail.as_bytes()).map(|id| id.as_json().to_owned())
    }

    #[test]
    fn id_of_a_truncated_message_is_found_at_either_end() {
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(
            start(r#"{"jsonrpc":"2.0","id": 7,"result":{"x":"#),
            some("7")
        );
        assert_eq!(start(r#"{"id" : "a\"b" ,"method":"x"#), some(r#""a\"b""#));
        assert_eq!(start(r#"{"result":{"id":3,"x":"#), None);
        assert_eq!(start(r#"{"params":{"id":3,"x":"#), None);
        assert_eq!(start(r#"{"id":123"#), None, "it may go on");
        assert_eq!(start(r#"{"id":{"a":1},"#), None);
        assert_eq!(start("xxxxxxxx"), None);
        assert_eq!(end(r#"x"},"jsonrpc":"2.0","id":12}"#), some("12"));
        assert_eq!(end(r#"x"},"id": "a" }"#), some(r#""a""#));
        assert_eq!(end(r#"x","id":3}}"#), None);
        assert_eq!(end("xxxx"), None);
    }

    /// Only top-level members determine the kind of a message.
    #[test]
    fn broken_message_is_classified_by_its_top_level() {
        let of = |text: &[u8]| {
            let scanned = PartialMessage::scan(text);
            let id = scanned.id().map(|id| id.as_json().to_owned());
            (id, scanned.has_method(), scanned.is_response())
        };
        let answer = || (Some("7".to_owned()), false, true);
        for broken in [
            &b"\xef\xbb\xbf{\"id\":7,\"result\":{}}"[..],
            b" {\"id\": 7 ,\"result\":{\"text\":\"\xff\x01\"}}",
            br#"{"id":7,"id":7,"result":{}}"#,
            br#"{"id":7,"result":{"text":"a \"method\" ","method":1,"params":[{}],}}"#,
            br#"{"result":{"text":"\\","x":NaN},"id":7}"#,
            br#"{"\ud800":1,"\u0069d":7,"error":{"#,
            br#"{"id":7,"Error":null}"#,
        ] {
            let words = String::from_utf8_lossy(broken);
            assert_eq!(of(broken), answer(), "{words}");
        }
        let asks = |text: &[u8]| of(text).1;
        assert!(asks(br#"{"id":7,"method":"x","params":{"result":"#));
        assert!(asks(br#"{"m\u0065thod":"x""#));
        assert!(asks(br#"{"id":7,"result":{},"method":"x""#));
        assert_eq!(of(br#"{"id":7,"id":8,"result":{}}"#).0, None);
        assert_eq!(of(br#"{"id":7,"id":null,"id":7,"result":{}}"#).0, None);
        assert_eq!(of(br#"[{"id":7,"result":{}}]"#).0, None);
        let method = |text: &str| {
            PartialMessage::scan(text.as_bytes())
                .method()
                .map(str::to_owned)
        };
        assert_eq!(
            method(r#"{"method" : "a/b" ,"id":7}"#).as_deref(),
            Some("a/b")
        );
        assert_eq!(method(r#"{"method":"a\u002fb"}"#).as_deref(), Some("a/b"));
        assert_eq!(method(r#"{"params":{"method":"x"},"method":7}"#), None);
        assert_eq!(method(r#"{"method":"it may go"#), None);
        for end in 0..40 {
            let _ = of(&br#"{"\"id":"\\","id":7,"result":{"x":["\""]}}"#[..end]);
        }
    }
}
