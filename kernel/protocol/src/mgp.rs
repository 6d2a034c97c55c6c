//! The words of MGP that the kernel says and reads.

pub mod audit;
pub mod door;
pub mod kernel;
pub mod servers;

use serde_json::value::RawValue;

use crate::mcp::methods;

/// Prefix of every MGP method (MGP §1.5).
pub const PREFIX: &str = "mgp/";

methods! { "notifications/mgp.audit" => Audit<'_> }

/// `notifications/mgp.audit`: an event, for a server that negotiated `audit` (MGP §6.3).
#[derive(Debug)]
pub struct Audit<'a> {
    /// `_mgp.seq`: one more than that of the notification before, so that a gap is told from silence.
    pub seq: u64,
    /// An [`audit::Event`], as it stands in the log.
    pub event: &'a RawValue,
}

impl Audit<'_> {
    /// `params` as JSON text: the event's members after `_mgp`.
    #[must_use]
    pub fn params(&self) -> String {
        let members = self.event.get().trim_start().trim_start_matches('{');
        let comma = if members.trim_start().starts_with('}') {
            ""
        } else {
            ","
        };
        format!(r#"{{"_mgp":{{"seq":{}}}{comma}{members}"#, self.seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MGP-084: the event goes out as it stands in the log, with its number for who watches for gaps.
    #[test]
    fn an_audit_notification_is_numbered() {
        let params = |event: &str| {
            let event = RawValue::from_string(event.into()).unwrap();
            let event = &event;
            Audit { seq: 43, event }.params()
        };
        assert_eq!(
            params(r#"{"result":"SUCCESS","n":1e400}"#),
            r#"{"_mgp":{"seq":43},"result":"SUCCESS","n":1e400}"#
        );
        assert_eq!(params("{ }"), r#"{"_mgp":{"seq":43} }"#);
    }
}
