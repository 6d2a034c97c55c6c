//! Errors that the other end of a request answered with, as the kernel passes them on. Who wrote one is told by the
//! variant of the refusal: nothing that stands in it decides anything.

use serde::Deserialize;

use super::{HEADER_MISMATCH, MISSING_CAPABILITY, Refusal, UNSUPPORTED_VERSION};
use crate::jsonrpc::METHOD_NOT_FOUND;

impl Refusal {
    /// The error object that the other end answered with, as JSON text; `None` for the kernel's own refusals.
    #[must_use]
    pub fn relayed_error(&self) -> Option<&str> {
        if let Self::Peer(error) | Self::Unattributed(error) = self {
            return Some(error.get());
        }
        if let Self::Owner(refusal) = self {
            return refusal.error();
        }
        None
    }

    /// True where the other end answered, and with an error.
    #[must_use]
    pub fn is_answer(&self) -> bool {
        matches!(self, Self::Peer(_) | Self::Owner(_) | Self::Unattributed(_))
    }
}

/// The HTTP status a peer's error would have had, had the kernel said it.
pub(super) fn peer_http_status(error: &str) -> u16 {
    #[derive(Deserialize)]
    struct OnlyCode {
        code: i64,
    }
    match serde_json::from_str::<OnlyCode>(error).map(|e| e.code) {
        Ok(HEADER_MISMATCH | MISSING_CAPABILITY | UNSUPPORTED_VERSION) => 400,
        Ok(METHOD_NOT_FOUND) => 404,
        _ => 200,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;
    use crate::refusal::owner_refusal::{OwnerAnswer, OwnerRefusal, OwnerRefusalCause};
    use crate::refusal::{CallOutcome, Rendered};

    /// The agent reads the same, whoever wrote it: without words of MGP where it speaks none.
    #[test]
    fn a_relayed_error_is_rendered_alike_whoever_wrote_it() {
        let text = r#"{"code":2000,"message":"m","data":{"_mgp":{"retryable":true},"x":1}}"#;
        let raw = RawValue::from_string(text.to_owned()).unwrap();
        let owner = OwnerRefusal {
            cause: OwnerRefusalCause::Unavailable,
            outcome: CallOutcome::NotExecuted,
            answer: OwnerAnswer::Error(text.to_owned()),
        };
        let plain = r#"{"code":-32603,"message":"m","data":{"x":1}}"#;
        for refusal in [
            Refusal::Peer(raw.clone()),
            Refusal::Unattributed(raw),
            Refusal::Owner(Box::new(owner.clone())),
        ] {
            assert!(refusal.is_answer());
            let version = crate::dialect::Version::STATELESS;
            let rendered = |rendered| match rendered {
                Rendered::Error(error) => error,
                Rendered::Result(result) => panic!("{result}"),
            };
            assert_eq!(rendered(refusal.render(version)), plain);
            assert_eq!(rendered(refusal.render_mgp(version)), text);
        }
        let result = OwnerRefusal {
            answer: OwnerAnswer::Result("{}".to_owned()),
            ..owner
        };
        let refusal = Refusal::Owner(Box::new(result));
        let version = crate::dialect::Version::STATELESS;
        for rendered in [refusal.render(version), refusal.render_mgp(version)] {
            assert!(matches!(rendered, Rendered::Result(result) if result == "{}"));
        }
    }
}
