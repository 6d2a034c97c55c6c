//! The channels of one connection to a server, and those to reopen on the next one.

use std::collections::BTreeMap;
use std::sync::Arc;

use mgp_json::{Splice, member};
use mgp_protocol::mcp;
use mgp_protocol::mcpl::channels::{CHANNEL_ID_MAX, DESCRIPTOR_MAX, Descriptor, Direction};

/// Most channels of one connection: a longer list is of no use to a person.
pub(crate) const CHANNELS_MAX: usize = 4096;
/// Most bytes of all descriptions together.
pub(crate) const DESCRIPTORS_MAX: usize = 4 << 20;
/// Most channels reopened after a server's restart; beyond the bound no more are remembered.
pub(crate) const REOPENED_MAX: usize = 256;

/// A channel of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisteredChannel {
    /// The server's own id.
    pub id: Arc<str>,
    /// The platform.
    pub kind: Arc<str>,
    /// Direction of messages.
    pub(crate) direction: Direction,
    /// Its description as the server wrote it.
    json: Arc<str>,
}

/// Why a channel is not registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// Not the form of MCPL.
    #[error("invalid channel description: {0}")]
    Malformed(String),
    /// The id is invalid.
    #[error("a channel's id must have 1 to {CHANNEL_ID_MAX} bytes and no control characters")]
    InvalidId,
    /// The description is too long.
    #[error("the description of a channel has more than {DESCRIPTOR_MAX} bytes")]
    TooLong,
    /// Too many channels.
    #[error("a server has at most {CHANNELS_MAX} channels, described in {DESCRIPTORS_MAX} bytes")]
    Full,
}

impl RegisteredChannel {
    /// Parses a description.
    ///
    /// # Errors
    /// [`RegisterError`]
    pub fn read(json: &str) -> Result<Self, RegisterError> {
        if json.len() > DESCRIPTOR_MAX {
            return Err(RegisterError::TooLong);
        }
        let read: Descriptor<'_> = mcp::parse_params(Some(json))
            .map_err(|refusal| RegisterError::Malformed(refusal.to_string()))?;
        if !is_id(&read.id) {
            return Err(RegisterError::InvalidId);
        }
        Ok(Self {
            id: (&*read.id).into(),
            kind: (&*read.kind).into(),
            direction: read.direction,
            json: json.into(),
        })
    }

    /// Its description, with another id.
    #[must_use]
    pub fn describe_as(&self, name: &str) -> String {
        let mut splice = Splice::new(&self.json);
        if let Some(id) = member(&self.json, "id") {
            splice.replace(id, mgp_json::quote(name));
        }
        splice.finish().into_owned()
    }

    /// Its description as the server wrote it.
    #[must_use]
    pub fn json(&self) -> &str {
        &self.json
    }

    /// True when messages may be published to it.
    #[must_use]
    pub fn is_outgoing(&self) -> bool {
        self.direction != Direction::Inbound
    }

    /// True when it delivers messages.
    #[must_use]
    pub fn is_incoming(&self) -> bool {
        self.direction != Direction::Outbound
    }
}

/// True for a valid channel id.
#[must_use]
pub fn is_id(id: &str) -> bool {
    (1..=CHANNEL_ID_MAX).contains(&id.len()) && !id.chars().any(char::is_control)
}

/// The channels of one server.
#[derive(Clone, Debug, Default)]
pub struct ServerChannels {
    channels: BTreeMap<Arc<str>, RegisteredChannel>,
    bytes: usize,
    /// Channels that the host opened: their ids, and the params to reopen them with.
    opened: BTreeMap<Arc<str>, Arc<str>>,
}

impl ServerChannels {
    /// The channel of this id.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<&RegisteredChannel> {
        self.channels.get(id)
    }

    /// All channels in the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = &RegisteredChannel> {
        self.channels.values()
    }

    /// Registers these channels, all or none; one with a known id replaces the other.
    ///
    /// # Errors
    /// [`RegisterError`]: nothing was registered.
    pub fn register<'a>(
        &mut self,
        descriptors: impl ExactSizeIterator<Item = &'a str>,
    ) -> Result<Vec<Arc<str>>, RegisterError> {
        if descriptors.len() > CHANNELS_MAX {
            return Err(RegisterError::Full);
        }
        let read: Vec<_> = descriptors
            .map(RegisteredChannel::read)
            .collect::<Result<_, _>>()?;
        let (was, was_bytes) = (self.channels.clone(), self.bytes);
        let ids = read.iter().map(|channel| channel.id.clone()).collect();
        read.into_iter().for_each(|channel| self.insert(channel));
        if self.channels.len() > CHANNELS_MAX || self.bytes > DESCRIPTORS_MAX {
            (self.channels, self.bytes) = (was, was_bytes);
            return Err(RegisterError::Full);
        }
        Ok(ids)
    }

    fn insert(&mut self, channel: RegisteredChannel) {
        self.bytes += channel.json.len();
        if let Some(was) = self.channels.insert(channel.id.clone(), channel) {
            self.bytes -= was.json.len();
        }
    }

    /// Removes a channel; it is not reopened.
    pub fn remove(&mut self, id: &str) {
        if let Some(removed) = self.channels.remove(id) {
            self.bytes -= removed.json.len();
        }
        self.opened.remove(id);
    }

    /// Registers a channel that the server opened at the host's request.
    ///
    /// # Errors
    /// [`RegisterError`]
    pub fn register_opened(
        &mut self,
        descriptor: &str,
        params: &str,
    ) -> Result<Arc<str>, RegisterError> {
        let id = RegisteredChannel::read(descriptor)?.id;
        self.register([descriptor].into_iter())?;
        if self.opened.len() < REOPENED_MAX || self.opened.contains_key(&id) {
            self.opened.insert(id.clone(), params.into());
        }
        Ok(id)
    }

    /// Removes the channels of a lost connection. Those that the host opened are reopened on the next one.
    pub fn disconnect(&mut self) {
        self.channels.clear();
        self.bytes = 0;
    }

    /// The params of each channel to reopen.
    #[must_use]
    pub fn reopen_params(&self) -> Vec<Arc<str>> {
        self.opened.values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor(id: &str) -> String {
        format!(r#"{{"id":"{id}","type":"t","direction":"bidirectional","label":"L"}}"#)
    }

    fn ids(channels: &ServerChannels) -> Vec<&str> {
        channels.iter().map(|channel| &*channel.id).collect()
    }

    /// MCPL-116, MCPL-117, MCPL-118: registered, updated in place, removed, and named for agents.
    #[test]
    fn channels_are_registered_updated_and_removed() {
        let mut channels = ServerChannels::default();
        let (a, b) = (descriptor("a"), descriptor("b"));
        channels.register([&*a, &*b].into_iter()).unwrap();
        let again = a.replace("bidirectional", "inbound");
        channels.register([&*again].into_iter()).unwrap();
        assert_eq!(ids(&channels), ["a", "b"]);
        let channel = channels.get("a").unwrap();
        assert!(!channel.is_outgoing() && channel.is_incoming());
        assert_eq!(
            channel.describe_as("chat:a"),
            r#"{"id":"chat:a","type":"t","direction":"inbound","label":"L"}"#
        );
        channels.remove("a");
        assert_eq!(ids(&channels), ["b"]);
        assert_eq!(channels.bytes, b.len());
    }

    /// MCPL-117: registering 1,000,000 channels, or an overlong description, registers none.
    #[test]
    fn too_many_channels_are_none() {
        let mut channels = ServerChannels::default();
        channels.register([&*descriptor("a")].into_iter()).unwrap();
        let many: Vec<String> = (0..1_000_000).map(|n| descriptor(&n.to_string())).collect();
        let rejected = channels.register(many.iter().map(String::as_str));
        assert_eq!(rejected, Err(RegisterError::Full));
        for batch in many.chunks(1000).take(4) {
            channels.register(batch.iter().map(String::as_str)).unwrap();
        }
        let more = &many[4000..4100];
        assert_eq!(
            channels.register(more.iter().map(String::as_str)),
            Err(RegisterError::Full)
        );
        assert_eq!(channels.iter().count(), 4001);
        let long = descriptor(&"x".repeat(CHANNEL_ID_MAX + 1));
        let large = descriptor("y").replace("\"L\"", &format!("\"{}\"", "l".repeat(9000)));
        for (bad, why) in [
            (long.as_str(), RegisterError::InvalidId),
            (&large, RegisterError::TooLong),
            (&descriptor(""), RegisterError::InvalidId),
            (&descriptor("a\\u001b[2J"), RegisterError::InvalidId),
        ] {
            assert_eq!(channels.register([bad].into_iter()), Err(why));
        }
    }

    /// MCPL-120, MCPL-148: opened channels are reopened after a lost connection, closed ones are not.
    #[test]
    fn what_was_opened_is_opened_again() {
        let mut channels = ServerChannels::default();
        channels
            .register_opened(&descriptor("a"), r#"{"type":"t"}"#)
            .unwrap();
        channels
            .register_opened(&descriptor("b"), r#"{"type":"u"}"#)
            .unwrap();
        channels.remove("a");
        channels.disconnect();
        assert!(channels.get("b").is_none());
        let again: Vec<_> = channels.reopen_params();
        assert_eq!(again.len(), 1);
        assert_eq!(&*again[0], r#"{"type":"u"}"#);
    }
}
