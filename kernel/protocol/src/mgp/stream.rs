//! `mgp/stream/*`: partial results, and the messages of their reader (MGP §12). Pace and gap are of later
//! drafts.

use std::borrow::Cow;
use std::ops::Range;

use mgp_json::{Splice, can_contain_string, lookalike::AnyMember, member, quote};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::mcp::methods;

methods! {
    "notifications/mgp.stream.chunk" => Chunk<'_>,
    "notifications/mgp.stream.progress" => Progress<'_>,
    "notifications/mgp.stream.pace" => Pace<'_>,
    "notifications/mgp.stream.gap" => Gap<'_>,
    "mgp/stream/cancel" => Cancel<'_>,
}

/// `mgp/stream/pace`: the name of [`Pace`] as a tool of the kernel (later drafts).
pub const PACE_TOOL: &str = "mgp/stream/pace";
/// The most indices read from one `notifications/mgp.stream.gap`; further ones are ignored.
pub const MISSING_MAX: usize = 256;
/// The pace that removes an earlier limit: there is no value for none.
pub const UNPACED: u32 = 1_000_000;
/// The highest index of a chunk: readers that use 64-bit floating-point numbers cannot distinguish higher
/// ones.
pub const INDEX_MAX: u64 = (1 << 53) - 1;

/// `notifications/mgp.stream.chunk`: a part of a result, as sent by a server; all but the id is relayed
/// verbatim.
#[derive(Debug, Deserialize)]
pub struct Chunk<'a> {
    /// The request.
    #[serde(borrow)]
    pub request_id: &'a RawValue,
    /// The index, from 0.
    #[serde(borrow)]
    index: &'a RawValue,
    /// The content.
    #[serde(borrow, default)]
    pub content: Option<&'a RawValue>,
    /// True for the last chunk.
    #[serde(borrow, default)]
    done: Option<&'a RawValue>,
}

impl Chunk<'_> {
    /// The index; `None` if it is not in a form that every reader parses alike: digits only, up to
    /// [`INDEX_MAX`].
    #[must_use]
    pub fn index(&self) -> Option<u64> {
        let index: Option<u64> = self.index.get().parse().ok();
        index.filter(|index| *index <= INDEX_MAX)
    }

    /// True for the last chunk.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.done.is_some_and(|done| done.get() == "true")
    }
}

/// The text of a chunk's content; `None` if it is no text.
#[must_use]
pub fn chunk_text(content: &str) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct Content<'a> {
        #[serde(borrow, rename = "type")]
        kind: Cow<'a, str>,
        #[serde(borrow)]
        text: Cow<'a, str>,
    }
    let content: Content<'_> = serde_json::from_str(content).ok()?;
    (content.kind == "text").then_some(content.text)
}

/// `notifications/mgp.stream.progress`: the progress of a request.
#[derive(Debug, Deserialize)]
pub struct Progress<'a> {
    /// The request.
    #[serde(borrow)]
    pub request_id: &'a RawValue,
    /// From 0 to 1.
    #[serde(borrow, default)]
    pub(crate) progress: Option<&'a RawValue>,
    /// For people.
    #[serde(borrow, default)]
    pub message: Option<&'a RawValue>,
    /// The estimated remaining time.
    #[serde(default)]
    pub estimated_remaining_ms: Option<AnyMember>,
}

impl Progress<'_> {
    /// The fraction and its original text, which is relayed unchanged; `None` if it is not between 0 and 1.
    #[must_use]
    pub fn fraction(&self) -> Option<(f64, &str)> {
        let said = self.progress?.get();
        let share = parse_number(said).filter(|share| (0.0..=1.0).contains(share))?;
        Some((share, said))
    }
}

/// Parses a JSON number; `None` for anything else, and for a number that readers cannot represent.
#[must_use]
pub fn parse_number(json: &str) -> Option<f64> {
    let number: f64 = json.parse().ok()?;
    number.is_finite().then_some(number)
}

/// A message for people, as its JSON text; `None` if it is no text.
#[must_use]
pub fn message_json(message: Option<&RawValue>) -> Option<&str> {
    let text = message.map(RawValue::get);
    text.filter(|text| text.starts_with('"'))
}

/// The `params` of a `notifications/progress` for a client without MGP, all in JSON text.
#[must_use]
pub fn mcp_progress_params(token: &str, share: &str, message: Option<&str>) -> String {
    let message = message.map_or_else(String::new, |text| format!(r#","message":{text}"#));
    format!(r#"{{"progressToken":{token},"progress":{share},"total":1{message}}}"#)
}

/// The `params` of a `notifications/mgp.stream.progress` of the kernel; `message` is JSON text.
#[must_use]
pub fn progress_params(id: &str, progress: Option<f64>, message: Option<&str>) -> String {
    let number = |progress: f64| serde_json::to_string(&progress.clamp(0.0, 1.0)).ok();
    let progress = progress
        .filter(|progress| progress.is_finite())
        .and_then(number);
    let mut out = format!(r#"{{"request_id":{id}"#);
    for (name, value) in [("progress", progress.as_deref()), ("message", message)] {
        if let Some(value) = value {
            out.push_str(&format!(r#","{name}":{value}"#));
        }
    }
    out.push('}');
    out
}

/// `notifications/mgp.stream.pace`: the reader's maximum rate.
#[derive(Debug, Deserialize)]
pub struct Pace<'a> {
    /// The request.
    #[serde(borrow)]
    pub request_id: &'a RawValue,
    /// 0 pauses until a positive pace.
    pub(crate) max_chunks_per_second: f64,
    /// For people.
    #[serde(default)]
    pub reason: Option<AnyMember>,
}

impl Pace<'_> {
    /// The rate in whole chunks per second; positive values stay positive.
    #[must_use]
    pub fn rate(&self) -> u32 {
        match self.max_chunks_per_second {
            rate if rate <= 0.0 || rate.is_nan() => 0,
            rate => rate.clamp(1.0, f64::from(UNPACED)) as u32,
        }
    }
}

/// The `params` of the kernel's own pace for a server.
#[must_use]
pub fn pace_params(id: &str, rate: u32) -> String {
    format!(r#"{{"request_id":{id},"max_chunks_per_second":{rate},"reason":"client_busy"}}"#)
}

/// `notifications/mgp.stream.gap`: the reader misses chunks.
#[derive(Debug, Deserialize)]
pub struct Gap<'a> {
    /// The request.
    #[serde(borrow)]
    pub request_id: &'a RawValue,
    /// Their indices.
    pub missing_indices: Vec<u64>,
}

/// The `params` of the kernel's own gap for a server.
#[must_use]
pub fn gap_params(id: &str, missing: &[u64]) -> String {
    let missing: Vec<String> = missing.iter().map(u64::to_string).collect();
    format!(
        r#"{{"request_id":{id},"missing_indices":[{}]}}"#,
        missing.join(",")
    )
}

/// `mgp/stream/cancel`: cancels an in-flight request; answers [`Cancelled`].
#[derive(Debug, Deserialize)]
pub struct Cancel<'a> {
    /// The request.
    #[serde(borrow)]
    pub request_id: &'a RawValue,
    /// The reason, for people; a malformed one is ignored.
    #[serde(borrow, default)]
    pub reason: Option<&'a RawValue>,
}

/// The `params` of `mgp/stream/cancel` for a server.
#[must_use]
pub fn cancel_params(id: &str, reason: &str) -> String {
    format!(r#"{{"request_id":{id},"reason":{}}}"#, quote(reason))
}

/// The answer to `mgp/stream/cancel`.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Cancelled {
    /// False if the request had ended or is unknown (A-25).
    #[serde(default)]
    pub cancelled: bool,
    /// The partial result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial_result: Option<Box<RawValue>>,
}

/// True if `params` of a call request chunks (§12.3).
#[must_use]
pub fn has_stream_request(params: &str) -> bool {
    let own = |params| member(params, "_mgp").filter(|own: &&str| own.starts_with('{'));
    can_contain_string(params.as_bytes(), "stream")
        && own(params).and_then(|own| member(own, "stream")) == Some("true")
}

/// Removes the request for chunks from `params`, for a server that does not support it.
pub fn remove_stream_request(params: &str, splice: &mut Splice<'_>) {
    if !can_contain_string(params.as_bytes(), "_mgp") {
        return;
    }
    if let Some(own) = member(params, "_mgp").filter(|own| own.starts_with('{')) {
        splice.remove_members(own, &["stream"]);
    }
}

/// The member that requests chunks, to be added to `params`; `None` if it was added to an existing object.
#[must_use]
pub fn add_stream_request(
    params: &str,
    splice: &mut Splice<'_>,
) -> Option<(&'static str, &'static str)> {
    let Some(own) = member(params, "_mgp") else {
        return Some(("_mgp", r#"{"stream":true}"#));
    };
    match own.starts_with('{').then(|| member(own, "stream")) {
        None => splice.replace(own, r#"{"stream":true}"#),
        Some(None) => splice.insert_member(own, "stream", "true"),
        Some(Some(said)) => splice.replace(said, "true"),
    }
    None
}

/// The byte range of a part in `params`.
#[must_use]
pub fn byte_range(params: &str, part: &RawValue) -> Range<usize> {
    let start = part.get().as_ptr() as usize - params.as_ptr() as usize;
    start..start + part.get().len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::parse_params;

    /// MGP-157: valid members of a chunk are parsed; invalid ones reject the chunk, or are relayed.
    #[test]
    fn chunk_is_parsed_as_in_the_document() {
        let text = r#"{"request_id":20,"index":3,"content":{"type":"text","text":"a\nb"},"done":true,"gap_unrecoverable":true}"#;
        let chunk: Chunk<'_> = parse_params(Some(text)).unwrap();
        assert_eq!(
            (chunk.request_id.get(), chunk.index(), chunk.is_done()),
            ("20", Some(3), true)
        );
        assert_eq!(byte_range(text, chunk.request_id), 14..16);
        assert_eq!(chunk_text(chunk.content.unwrap().get()).unwrap(), "a\nb");
        let beyond = (INDEX_MAX + 1).to_string();
        for (index, done) in [
            ("-1", "1"),
            ("\"0\"", "null"),
            ("1.5", "\"true\""),
            ("1.0", "[true]"),
            ("1e1", "0"),
            ("-0", "{}"),
            ("null", "false"),
            ("9007199254740993", "1"),
            ("18446744073709551615", "1"),
            ("18446744073709551616", "1"),
            (&beyond, "1"),
        ] {
            let text = format!(r#"{{"request_id":"a","index":{index},"done":{done}}}"#);
            let chunk: Chunk<'_> = parse_params(Some(&text)).unwrap();
            assert_eq!((chunk.index(), chunk.is_done()), (None, false), "{text}");
        }
        assert!(parse_params::<Chunk<'_>>(Some(r#"{"index":0}"#)).is_err());
        assert!(
            parse_params::<Chunk<'_>>(Some(r#"{"request_id":1,"index":0,"Done":true}"#)).is_err()
        );
        assert_eq!(chunk_text(r#"{"type":"image","text":"a"}"#), None);
    }

    /// MGP-155: only `true` requests chunks.
    #[test]
    fn only_true_requests_chunks() {
        assert!(has_stream_request(
            r#"{"name":"a","_mgp":{"stream":true,"x":1}}"#
        ));
        for params in [
            r#"{"name":"a","_mgp":{"stream":false}}"#,
            r#"{"name":"a","_mgp":{"stream":"true"}}"#,
            r#"{"name":"a","_mgp":[true],"stream":true}"#,
            r#"{"name":"a","arguments":{"_mgp":{"stream":true}}}"#,
        ] {
            assert!(!has_stream_request(params), "{params}");
        }
    }

    /// MGP-154: the request is added for servers that support it, and removed for others.
    #[test]
    fn stream_request_is_added_and_removed() {
        let asked = |params: &str| {
            let mut splice = Splice::new(params);
            if let Some((name, value)) = add_stream_request(params, &mut splice) {
                splice.insert_member(params, name, value);
            }
            splice.finish().into_owned()
        };
        for (params, put) in [
            (r#"{"name":"a"}"#, r#"{"_mgp":{"stream":true},"name":"a"}"#),
            (r#"{"_mgp":{"x":1}}"#, r#"{"_mgp":{"stream":true,"x":1}}"#),
            (
                r#"{"_mgp":{"stream":false}}"#,
                r#"{"_mgp":{"stream":true}}"#,
            ),
            (r#"{"_mgp":7}"#, r#"{"_mgp":{"stream":true}}"#),
        ] {
            assert_eq!(asked(params), put);
            assert!(has_stream_request(put), "{put}");
        }
        let params = r#"{"name":"a","_mgp":{"x":1,"stream":true}}"#;
        let mut splice = Splice::new(params);
        remove_stream_request(params, &mut splice);
        assert_eq!(splice.finish(), r#"{"name":"a","_mgp":{"x":1}}"#);
    }

    #[test]
    fn pace_is_an_integer_and_stays_positive() {
        for (said, rate) in [
            ("0", 0),
            ("-3", 0),
            ("0.2", 1),
            ("12.9", 12),
            ("1e300", UNPACED),
        ] {
            let text = format!(r#"{{"request_id":1,"max_chunks_per_second":{said}}}"#);
            let pace: Pace<'_> = parse_params(Some(&text)).unwrap();
            assert_eq!(pace.rate(), rate, "{said}");
        }
    }

    /// MGP-162: a client without MGP reads the fraction in its original text, if it is valid.
    #[test]
    fn valid_fraction_is_relayed_unchanged() {
        let share = |progress: &str| {
            let text = format!(r#"{{"request_id":1,"progress":{progress}}}"#);
            let said: Progress<'_> = parse_params(Some(&text)).unwrap();
            said.fraction().map(|(_, text)| text.to_owned())
        };
        for fits in ["0", "0.5", "1.0", "1e-3", "0.30000000000000004", "0e0"] {
            assert_eq!(share(fits).as_deref(), Some(fits));
        }
        for bad in [
            "1e999",
            "-1e999",
            "65",
            "-0.1",
            "1.0000001",
            "\"0.5\"",
            "null",
            "[0.5]",
        ] {
            assert_eq!(share(bad), None, "{bad}");
        }
        assert_eq!(
            mcp_progress_params("\"t\"", "1e-1", Some("\"a\"")),
            r#"{"progressToken":"t","progress":1e-1,"total":1,"message":"a"}"#
        );
        assert_eq!(
            mcp_progress_params("7", "0", None),
            r#"{"progressToken":7,"progress":0,"total":1}"#
        );
    }

    /// MGP-162: a fraction is between 0 and 1, and absent if unknown.
    #[test]
    fn progress_is_a_fraction() {
        assert_eq!(
            progress_params("\"a\"", Some(0.65), Some("\"13/20\"")),
            r#"{"request_id":"a","progress":0.65,"message":"13/20"}"#
        );
        assert_eq!(
            progress_params("1", Some(7.0), None),
            r#"{"request_id":1,"progress":1.0}"#
        );
        assert_eq!(
            progress_params("1", Some(f64::NAN), None),
            r#"{"request_id":1}"#
        );
    }
}
