//! The metadata of a gRPC request: its deadline, whether it accepts promises, and the `_meta` that its messages have
//! no field for.

use std::time::Duration;

use http::HeaderMap;
use mgp_engine::tools::catalog::CatalogView;
use mgp_grpc::tonic::{Code, Status};
use mgp_protocol::ids::SetName;
use mgp_protocol::lite::preferences::Preferences;
use tokio::time::Instant;

use super::reply::new_status;
use crate::lite::call::LiteWait;

/// The header of the deadline, as sent by each gRPC client.
const TIMEOUT: &str = "grpc-timeout";

/// The header of the preferences, as over HTTP.
const PREFER: &str = "prefer";

/// The header of the call's `_meta`, as JSON text in ASCII.
const META: &str = "mgp-meta";

/// The header of the requested set, as in `/mcp-lite/v1/p/<set>/`.
const SET: &str = "mgp-set";

/// The longest deadline; longer ones are reduced to this.
const LONGEST: Duration = Duration::from_secs(86_400);

/// The metadata of a call.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct CallMetadata {
    /// The caller's total deadline.
    pub(super) timeout: Option<Duration>,
    /// The caller's preferences.
    pub(super) preferences: Preferences,
    /// The `_meta` of the call, as JSON text.
    pub(super) meta: Option<String>,
}

impl CallMetadata {
    /// Reads the metadata.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for malformed metadata.
    pub(super) fn parse(headers: &HeaderMap) -> Result<Self, Status> {
        let prefer = headers.get_all(PREFER).iter();
        Ok(Self {
            timeout: single_value(headers, TIMEOUT)?
                .map(parse_timeout)
                .transpose()?,
            preferences: Preferences::parse(prefer.filter_map(|value| value.to_str().ok())),
            meta: single_value(headers, META)?.map(parse_meta).transpose()?,
        })
    }
}

impl CallMetadata {
    /// The time at which the caller disconnects: `respond-sync, wait=N` acts as a deadline.
    pub(super) fn deadline(&self, began: Instant) -> Option<Instant> {
        let wait = self.preferences.wait.map(Duration::from_secs);
        let wait = wait.filter(|_| self.preferences.respond_sync);
        let first = [self.timeout, wait].into_iter().flatten().min();
        first.map(|timeout| began + timeout)
    }

    /// How long the caller waits for an answer. A stream has keep-alives, so a promise is needed only at
    /// its deadline.
    pub(super) fn lite_wait(&self, stream: bool) -> LiteWait {
        let preferences = &self.preferences;
        match (preferences.respond_sync, preferences.wait) {
            (true, _) => LiteWait::Forever,
            (false, Some(secs)) => LiteWait::After(Duration::from_secs(secs)),
            (false, None) if preferences.respond_async => LiteWait::After(Duration::ZERO),
            (false, None) if stream && self.timeout.is_some() => LiteWait::After(LONGEST),
            (false, None) if stream => LiteWait::Forever,
            (false, None) => LiteWait::Default,
        }
    }
}

/// The view of a request: all servers, or those of a set.
///
/// # Errors
/// INVALID_ARGUMENT for an invalid name of a set.
pub(super) fn parse_view(headers: &HeaderMap) -> Result<CatalogView, Status> {
    let Some(set) = single_value(headers, SET)? else {
        return Ok(CatalogView::All);
    };
    let set =
        SetName::parse(set).map_err(|_| invalid_argument("`mgp-set` must be the name of a set"))?;
    Ok(CatalogView::Set(set))
}

/// The value of a header that occurs at most once.
fn single_value<'h>(headers: &'h HeaderMap, name: &str) -> Result<Option<&'h str>, Status> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    match (value.to_str(), values.next()) {
        (Ok(text), None) => Ok(Some(text)),
        _ => Err(invalid_argument(&format!(
            "`{name}` must be there once, in ASCII"
        ))),
    }
}

/// Parses at most eight digits and a unit (the wire format of gRPC).
fn parse_timeout(text: &str) -> Result<Duration, Status> {
    let message = || {
        invalid_argument("`grpc-timeout` must be one to eight digits and one of H, M, S, m, u, n")
    };
    let (digits, unit) = text
        .split_at_checked(text.len().wrapping_sub(1))
        .ok_or_else(message)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(message());
    }
    let count: u64 = digits.parse().map_err(|_| message())?;
    let timeout = match unit {
        "H" => Duration::from_secs(count * 3600),
        "M" => Duration::from_secs(count * 60),
        "S" => Duration::from_secs(count),
        "m" => Duration::from_millis(count),
        "u" => Duration::from_micros(count),
        "n" => Duration::from_nanos(count),
        _ => return Err(message()),
    };
    Ok(timeout.min(LONGEST))
}

fn parse_meta(text: &str) -> Result<String, Status> {
    match mgp_json::members(text) {
        Some(_) => Ok(text.to_owned()),
        None => Err(invalid_argument("`mgp-meta` must be a JSON object")),
    }
}

fn invalid_argument(message: &str) -> Status {
    new_status(Code::InvalidArgument, "INVALID_REQUEST", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&'static str, &str)]) -> Result<CallMetadata, Code> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        CallMetadata::parse(&headers).map_err(|status| status.code())
    }

    /// LITE-063: deadlines in all units; malformed ones are rejected.
    #[test]
    fn deadlines_are_parsed_strictly() {
        let timeout = |text: &str| read(&[(TIMEOUT, text)]).map(|terms| terms.timeout.unwrap());
        for (text, micros) in [
            ("1H", 3_600_000_000),
            ("2M", 120_000_000),
            ("00000003S", 3_000_000),
            ("250m", 250_000),
            ("7u", 7),
            ("99999999n", 99_999),
        ] {
            assert_eq!(timeout(text).unwrap().as_micros(), micros, "{text}");
        }
        assert_eq!(timeout("99999999H"), Ok(LONGEST));
        for wrong in [
            "",
            "S",
            "5",
            "5s",
            "-1S",
            "1.5S",
            "123456789S",
            "+5S",
            " 5S",
            "5S ",
        ] {
            assert_eq!(timeout(wrong), Err(Code::InvalidArgument), "{wrong}");
        }
        let twice = read(&[(TIMEOUT, "1S"), (TIMEOUT, "2S")]);
        assert_eq!(twice, Err(Code::InvalidArgument));
    }

    /// LITE-059, LITE-063: a caller that accepts promises gets one in time; others have a deadline.
    #[tokio::test(start_paused = true)]
    async fn deadline_and_preferences_determine_the_promise() {
        let began = Instant::now();
        let of = |pairs: &[(&'static str, &str)], stream| {
            let terms = read(pairs).unwrap();
            let remaining = terms.deadline(began).map(|at| (at - began).as_secs());
            (terms.lite_wait(stream), remaining)
        };
        let (sync, five) = ((PREFER, "respond-sync, wait=5"), (TIMEOUT, "7S"));
        assert_eq!(of(&[], false), (LiteWait::Default, None));
        assert_eq!(of(&[], true), (LiteWait::Forever, None));
        assert_eq!(of(&[five], false), (LiteWait::Default, Some(7)));
        assert_eq!(of(&[five], true), (LiteWait::After(LONGEST), Some(7)));
        assert_eq!(of(&[sync], true), (LiteWait::Forever, Some(5)));
        assert_eq!(
            of(&[sync, (TIMEOUT, "2S")], false),
            (LiteWait::Forever, Some(2))
        );
        let now = (LiteWait::After(Duration::ZERO), None);
        assert_eq!(of(&[(PREFER, "respond-async")], false), now);
        let three = (LiteWait::After(Duration::from_secs(3)), Some(7));
        assert_eq!(of(&[(PREFER, "wait=3"), five], false), three);
    }

    #[test]
    fn set_header_has_one_spelling() {
        let of = |name: &str| {
            parse_view(&HeaderMap::from_iter([(
                SET.parse().unwrap(),
                name.parse().unwrap(),
            )]))
        };
        assert_eq!(parse_view(&HeaderMap::new()).unwrap(), CatalogView::All);
        let set = SetName::parse("reading").unwrap();
        assert_eq!(of("reading").unwrap(), CatalogView::Set(set));
        for other in ["", "Reading", "a/b", "%72eading", "reading,reading"] {
            assert_eq!(
                of(other).unwrap_err().code(),
                Code::InvalidArgument,
                "{other}"
            );
        }
    }

    #[test]
    fn preferences_and_meta_equal_those_of_http() {
        let terms = read(&[(PREFER, "respond-sync, wait=3"), (META, r#"{"a":1}"#)]).unwrap();
        assert!(terms.preferences.respond_sync && terms.preferences.wait == Some(3));
        assert_eq!(terms.meta.as_deref(), Some(r#"{"a":1}"#));
        assert_eq!(read(&[]), Ok(CallMetadata::default()));
        for wrong in ["", "[]", "{", "1"] {
            assert_eq!(
                read(&[(META, wrong)]),
                Err(Code::InvalidArgument),
                "{wrong}"
            );
        }
    }
}
