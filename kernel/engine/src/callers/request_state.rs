//! Identifies a suspended call when its client comes back with answers (MRTR, SEP-2322).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use mgp_json::members;
use serde::{Deserialize, Serialize};

/// Members of `params` that differ between the attempts of one call; each attempt may have a trace of its own, for
/// instance from another kernel.
const PER_ATTEMPT_MEMBERS: [&str; 4] = ["_meta", "inputResponses", "requestState", "trace_id"];

/// The sealed contents of `requestState` in an `input_required` result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestState {
    /// The run of the kernel that suspended the call.
    pub boot: u64,
    /// The number of the call in that run.
    pub call: u64,
    /// Its method.
    pub method: String,
    /// A digest of the request, so that an answer to one call cannot continue another.
    pub digest: RequestDigest,
    /// When the state expires, in milliseconds since 1970.
    pub expires_ms: u64,
    /// How a retry continues.
    pub kind: RequestStateKind,
}

/// How a retry continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RequestStateKind {
    /// The call still waits at its server, and the answers go there.
    Suspended,
    /// Nothing is suspended: the call starts again.
    Again,
}

/// Why a state that could be unsealed cannot be used; -32602.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestStateError {
    /// It has expired.
    #[error("requestState has expired; make the call anew, without it")]
    Expired,
    /// The kernel was restarted, and its suspended calls are gone.
    #[error("requestState is from before a restart; make the call anew, without it")]
    Restarted,
    /// It belongs to another call.
    #[error("requestState belongs to a call with another method or other params")]
    CallMismatch,
}

impl RequestState {
    /// Checks a retry of `method` with `params`, made in the kernel's run `boot` at `now_ms` (milliseconds since
    /// 1970).
    ///
    /// # Errors
    /// [`RequestStateError`] when it does not continue its call.
    pub fn check(
        &self,
        boot: u64,
        now_ms: u64,
        method: &str,
        params: Option<&str>,
    ) -> Result<(), RequestStateError> {
        if self.method != method || self.digest != RequestDigest::new(method, params) {
            return Err(RequestStateError::CallMismatch);
        }
        if now_ms >= self.expires_ms {
            return Err(RequestStateError::Expired);
        }
        match self.kind {
            RequestStateKind::Suspended if self.boot != boot => Err(RequestStateError::Restarted),
            RequestStateKind::Suspended | RequestStateKind::Again => Ok(()),
        }
    }
}

/// A digest of a call's request: the same for all attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct RequestDigest([u8; blake3::OUT_LEN]);

impl RequestDigest {
    /// Digests a method and the members of its `params` except `_meta`, `inputResponses`, `requestState` and
    /// `trace_id`. The order of members does not matter; their exact bytes do.
    #[must_use]
    pub fn new(method: &str, params: Option<&str>) -> Self {
        let params = params.unwrap_or("{}");
        let mut hasher = blake3::Hasher::new();
        let mut put = |text: &str| {
            hasher.update(&(text.len() as u64).to_le_bytes());
            hasher.update(text.as_bytes());
        };
        put(method);
        match members(params) {
            None => put(params),
            Some(mut members) => {
                members.retain(|(name, _)| !PER_ATTEMPT_MEMBERS.contains(&&**name));
                // A stable sort: the order of two members of one name matters.
                members.sort_by(|(one, _), (other, _)| one.cmp(other));
                for (name, value) in members {
                    put(&name);
                    put(value.get());
                }
            }
        }
        Self(*hasher.finalize().as_bytes())
    }
}

impl From<RequestDigest> for String {
    fn from(digest: RequestDigest) -> Self {
        URL_SAFE_NO_PAD.encode(digest.0)
    }
}

impl TryFrom<String> for RequestDigest {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok();
        let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or("a digest has 32 bytes")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::callers::seal::{Purpose, SealKey};

    const PARAMS: &str = r#"{"name":"ask","arguments":{"a":1.0e2,"b":[]}}"#;

    fn state(kind: RequestStateKind) -> RequestState {
        RequestState {
            boot: 3,
            call: 77,
            method: "tools/call".into(),
            digest: RequestDigest::new("tools/call", Some(PARAMS)),
            expires_ms: 1_000,
            kind,
        }
    }

    /// SEP-2322: members added for a retry do not count.
    #[test]
    fn all_attempts_of_a_call_have_the_same_digest() {
        let first = RequestDigest::new("tools/call", Some(PARAMS));
        for same in [
            r#"{"arguments":{"a":1.0e2,"b":[]},"name":"ask"}"#,
            r#"{"name" : "ask","requestState":"x","_meta":{"progressToken":1},"arguments":{"a":1.0e2,"b":[]},"inputResponses":{}}"#,
            r#"{"name":"ask","arguments":{"a":1.0e2,"b":[]},"trace_id":"another"}"#,
        ] {
            assert_eq!(
                RequestDigest::new("tools/call", Some(same)),
                first,
                "{same}"
            );
        }
        for other in [
            r#"{"name":"ask","arguments":{"a":100,"b":[]}}"#,
            r#"{"name":"ask2","arguments":{"a":1.0e2,"b":[]}}"#,
            r#"{"name":"ask","arguments":{"a":1.0e2,"b":[]},"more":null}"#,
            r#"{"name":"ask"}"#,
            "[]",
        ] {
            assert_ne!(
                RequestDigest::new("tools/call", Some(other)),
                first,
                "{other}"
            );
        }
        assert_ne!(RequestDigest::new("prompts/get", Some(PARAMS)), first);
        assert_eq!(
            RequestDigest::new("x", None),
            RequestDigest::new("x", Some("{}"))
        );
        // Where one member ends and the next begins is part of it.
        let one = RequestDigest::new("x", Some(r#"{"a":"1","b":"2"}"#));
        assert_ne!(one, RequestDigest::new("x", Some(r#"{"a\"1\"b":"2"}"#)));
    }

    #[test]
    fn a_state_continues_only_its_own_call() {
        let suspended = state(RequestStateKind::Suspended);
        let call = Some(PARAMS);
        assert_eq!(suspended.check(3, 999, "tools/call", call), Ok(()));
        let judged = |boot, now, method, params| suspended.check(boot, now, method, params);
        assert_eq!(
            judged(3, 1_000, "tools/call", call),
            Err(RequestStateError::Expired)
        );
        assert_eq!(
            judged(4, 999, "tools/call", call),
            Err(RequestStateError::Restarted)
        );
        assert_eq!(
            judged(3, 999, "prompts/get", call),
            Err(RequestStateError::CallMismatch)
        );
        assert_eq!(
            judged(3, 999, "tools/call", None),
            Err(RequestStateError::CallMismatch)
        );
        let again = state(RequestStateKind::Again);
        assert_eq!(again.check(4, 999, "tools/call", call), Ok(()));
        assert_eq!(
            again.check(4, 1_000, "tools/call", call),
            Err(RequestStateError::Expired)
        );
    }

    #[test]
    fn a_sealed_state_round_trips() {
        let key = SealKey::new([1; 32]);
        let text = key.seal(
            Purpose::RequestState,
            "ann",
            &state(RequestStateKind::Suspended),
        );
        assert!(text.len() < 400, "{}", text.len());
        let opened = key.open(Purpose::RequestState, "ann", &text);
        assert_eq!(opened, Ok(state(RequestStateKind::Suspended)));
    }
}
