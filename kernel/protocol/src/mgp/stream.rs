//! `mgp/stream/*`: results before the result, and what their reader says of them (MGP §12). Pace and gap
//! are of later drafts.

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
/// Indices read of one `notifications/mgp.stream.gap`; later ones are not there.
pub const MISSING_MAX: usize = 256;
/// The pace that takes back an earlier one: there is no word for none.
pub const UNPACED: u32 = 1_000_000;
/// The highest index of a chunk: readers whose numbers are of 64 bits with a fraction cannot tell a higher
/// one from the next.
pub const INDEX_MAX: u64 = (1 << 53) - 1;

/// `notifications/mgp.stream.chunk`: a part of a result. As a server wrote it; all but the id is relayed
/// verbatim.
#[derive(Debug, Deserialize)]
pub struct Chunk<'a> {
    /// Which request it is of.
    #[serde(borrow)]
    pub request_id: &'a RawValue,
    /// Its place, from 0.
    #[serde(borrow)]
    index: &'a RawValue,
    /// The part itself.
    #[serde(borrow, default)]
    pub content: Option<&'a RawValue>,
    /// Nothing comes after it.
    #[serde(borrow, default)]
    done: Option<&'a RawValue>,
}

impl Chunk<'_> {
    /// Its place; `None` when it says none that every reader counts alike: digits alone, up to
    /// [`INDEX_MAX`].
    #[must_use]
    pub fn index(&self) -> Option<u64> {
        let index: Option<u64> = self.index.get().parse().ok();
        index.filter(|index| *index <= INDEX_MAX)
    }

    /// True when nothing comes after it.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.done.is_some_and(|done| done.get() == "true")
    }
}

/// The text of a chunk's content; `None` where it is something else.
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

/// `notifications/mgp.stream.progress`: how far a request is.
#[derive(Debug, Deserialize)]
pub struct Progress<'a> {
    /// Which request.
    #[serde(borrow)]
    pub request_id: &'a RawValue,
    /// From 0 to 1.
    #[serde(borrow, default)]
    pub(crate) progress: Option<&'a RawValue>,
    /// For people.
    #[serde(borrow, default)]
    pub message: Option<&'a RawValue>,
    /// How long it takes still.
    #[serde(default)]
    pub estimated_remaining_ms: Option<AnyMember>,
}

impl Progress<'_> {
    /// The share of the whole and its own words, which are passed on as they stand; `None` where it is
    /// none between 0 and 1.
    #[must_use]
    pub fn fraction(&self) -> Option<(f64, &str)> {
        let said = self.progress?.get();
        let share = parse_number(said).filter(|share| (0.0..=1.0).contains(share))?;
        Some((share, said))
    }
}

/// The number of this JSON text; `None` for anything else, and for a number that readers cannot hold:
/// written again it would be none.
#[must_use]
pub fn parse_number(json: &str) -> Option<f64> {
    let number: f64 = json.parse().ok()?;
    number.is_finite().then_some(number)
}

/// A message for people, as its JSON text; `None` where it is no text.
#[must_use]
pub fn message_json(message: Option<&RawValue>) -> Option<&str> {
    let text = message.map(RawValue::get);
    text.filter(|text| text.starts_with('"'))
}

/// `params` of a `notifications/progress` for a plain client, all in JSON text.
#[must_use]
pub fn mcp_progress_params(token: &str, share: &str, message: Option<&str>) -> String {
    let message = message.map_or_else(String::new, |words| format!(r#","message":{words}"#));
    format!(r#"{{"progressToken":{token},"progress":{share},"total":1{message}}}"#)
}

/// `params` of a `notifications/mgp.stream.progress` of the kernel's own; `message` is JSON text.
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

/// `notifications/mgp.stream.pace`: how fast its reader takes chunks.
#[derive(Debug, Deserialize)]
pub struct Pace<'a> {
    /// Which request.
    #[serde(borrow)]
    pub request_id: &'a RawValue,
    /// 0: none until a positive pace.
    pub(crate) max_chunks_per_second: f64,
    /// For people.
    #[serde(default)]
    pub reason: Option<AnyMember>,
}

impl Pace<'_> {
    /// Whole chunks a second; what is positive stays so.
    #[must_use]
    pub fn rate(&self) -> u32 {
        match self.max_chunks_per_second {
            rate if rate <= 0.0 || rate.is_nan() => 0,
            rate => rate.clamp(1.0, f64::from(UNPACED)) as u32,
        }
    }
}

/// `params` of the kernel's own pace toward a server.
#[must_use]
pub fn pace_params(id: &str, rate: u32) -> String {
    format!(r#"{{"request_id":{id},"max_chunks_per_second":{rate},"reason":"client_busy"}}"#)
}

/// `notifications/mgp.stream.gap`: its reader misses chunks.
#[derive(Debug, Deserialize)]
pub struct Gap<'a> {
    /// Which request.
    #[serde(borrow)]
    pub request_id: &'a RawValue,
    /// Their places.
    pub missing_indices: Vec<u64>,
}

/// `params` of the kernel's own gap toward a server.
#[must_use]
pub fn gap_params(id: &str, missing: &[u64]) -> String {
    let missing: Vec<String> = missing.iter().map(u64::to_string).collect();
    format!(
        r#"{{"request_id":{id},"missing_indices":[{}]}}"#,
        missing.join(",")
    )
}

/// `mgp/stream/cancel`: ends a request under way; answers [`Cancelled`].
#[derive(Debug, Deserialize)]
pub struct Cancel<'a> {
    /// Which request.
    #[serde(borrow)]
    pub request_id: &'a RawValue,
    /// For people; one that is no text cancels all the same.
    #[serde(borrow, default)]
    pub reason: Option<&'a RawValue>,
}

/// `params` of a `mgp/stream/cancel` toward a server.
#[must_use]
pub fn cancel_params(id: &str, reason: &str) -> String {
    format!(r#"{{"request_id":{id},"reason":{}}}"#, quote(reason))
}

/// Answer of `mgp/stream/cancel`.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Cancelled {
    /// False: it was over, or never was (A-25).
    #[serde(default)]
    pub cancelled: bool,
    /// What there was of its result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial_result: Option<Box<RawValue>>,
}

/// True when `params` of a call ask for chunks (§12.3).
#[must_use]
pub fn has_stream_request(params: &str) -> bool {
    let own = |params| member(params, "_mgp").filter(|own: &&str| own.starts_with('{'));
    can_contain_string(params.as_bytes(), "stream")
        && own(params).and_then(|own| member(own, "stream")) == Some("true")
}

/// Takes the wish for chunks out of `params`, for a server that does not know it.
pub fn remove_stream_request(params: &str, splice: &mut Splice<'_>) {
    if !can_contain_string(params.as_bytes(), "_mgp") {
        return;
    }
    if let Some(own) = member(params, "_mgp").filter(|own| own.starts_with('{')) {
        splice.remove_members(own, &["stream"]);
    }
}

/// The member that asks for chunks, to be put into `params`; `None` when it was put into what is there.
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

/// Where in `params` a part of it stands.
#[must_use]
pub fn byte_range(params: &str, part: &RawValue) -> Range<usize> {
    let start = part.get().as_ptr() as usize - params.as_ptr() as usize;
    start..start + part.get().len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::parse_params;

    /// MGP-157: what a chunk says is read; what it says amiss makes it none, or stays with it.
    #[test]
    fn a_chunk_is_read_as_the_document_has_it() {
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

    /// MGP-155: only `true` asks.
    #[test]
    fn a_call_asks_for_chunks_or_does_not() {
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

    /// MGP-154: the wish is put in for who knows it, and is taken out for who does not.
    #[test]
    fn the_wish_is_put_in_and_taken_out() {
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
    fn a_pace_is_whole_and_stays_positive() {
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

    /// MGP-162: a plain client reads the share in the server's own words, and only where it is one.
    #[test]
    fn a_share_is_passed_on_as_it_stands_or_not_at_all() {
        let share = |progress: &str| {
            let text = format!(r#"{{"request_id":1,"progress":{progress}}}"#);
            let said: Progress<'_> = parse_params(Some(&text)).unwrap();
            said.fraction().map(|(_, words)| words.to_owned())
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

    /// MGP-162: a share is between 0 and 1, and not there where nobody knows it.
    #[test]
    fn progress_is_a_share_of_the_whole() {
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
