//! The channels in a server's hook before an inference (MCPL §14.4): its own, by its own names.

use std::borrow::Cow;

use mgp_json::{lookalike, quote};
use mgp_protocol::ids::ServerId;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::names;

/// Most candidates in a hook; further ones are omitted.
const CANDIDATES_MAX: usize = 256;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ChannelContext<'a> {
    #[serde(borrow, default, deserialize_with = "lookalike::object")]
    incoming: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "lookalike::object")]
    default_outgoing: Option<&'a RawValue>,
    #[serde(borrow, default)]
    candidates: Vec<Cow<'a, str>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ChannelRef<'a> {
    #[serde(borrow)]
    channel_id: Cow<'a, str>,
    #[serde(borrow, default)]
    message_id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    thread_id: Option<Cow<'a, str>>,
}

/// The `channels` of a hook for this server; `None` if none of them is its own. All servers receive candidates that
/// belong to no server, like `ui`.
#[must_use]
pub fn for_server(server: &ServerId, channels: &str) -> Option<String> {
    let read: ChannelContext<'_> = lookalike::from_object(channels).ok()?;
    let server = server.server();
    let own_id = |id: &str| {
        let (of, channel) = names::parse_channel(id)?;
        (of == server).then(|| quote(channel))
    };
    let channel_ref = |name: &str, raw: Option<&RawValue>| {
        let channel_ref: ChannelRef<'_> = lookalike::from_object(raw?.get()).ok()?;
        let mut text = format!(
            r#""{name}":{{"channelId":{}"#,
            own_id(&channel_ref.channel_id)?
        );
        for (member, value) in [
            ("messageId", channel_ref.message_id),
            ("threadId", channel_ref.thread_id),
        ] {
            if let Some(value) = value {
                text.push_str(&format!(r#","{member}":{}"#, quote(&value)));
            }
        }
        text.push('}');
        Some(text)
    };
    let mut parts: Vec<String> = Vec::new();
    parts.extend(channel_ref("incoming", read.incoming));
    parts.extend(channel_ref("defaultOutgoing", read.default_outgoing));
    let candidates = read.candidates.iter().filter_map(|id| {
        if id.contains(':') {
            own_id(id)
        } else {
            Some(quote(id))
        }
    });
    let candidates: Vec<_> = candidates.take(CANDIDATES_MAX).collect();
    if !candidates.is_empty() {
        parts.push(format!(r#""candidates":[{}]"#, candidates.join(",")));
    }
    (!parts.is_empty()).then(|| format!("{{{}}}", parts.join(",")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MCPL-129: a server reads its own channels by its own names, and none of another server.
    #[test]
    fn a_server_is_told_of_its_own_channels_only() {
        let channels = r##"{
            "incoming": { "channelId": "bridge:discord:#general", "messageId": "dmsg_123", "threadId": "t_42" },
            "defaultOutgoing": { "channelId": "other:telegram:1" },
            "candidates": ["ui", "bridge:discord:#general", "other:telegram:1"]
        }"##;
        assert_eq!(
            for_server(&ServerId::new("bridge"), channels).unwrap(),
            r##"{"incoming":{"channelId":"discord:#general","messageId":"dmsg_123","threadId":"t_42"},"candidates":["ui","discord:#general"]}"##
        );
        assert_eq!(
            for_server(&ServerId::new("memory"), channels).unwrap(),
            r#"{"candidates":["ui"]}"#
        );
        assert_eq!(
            for_server(&ServerId::new("memory"), r#"{"candidates":[]}"#),
            None
        );
        assert_eq!(for_server(&ServerId::new("memory"), "[]"), None);
    }
}
