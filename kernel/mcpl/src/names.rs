//! Names of sets and channels for agents, which see all servers as one (MCPL-151, MCPL-158).
//!
//! `SERVER.SET` and `SERVER:CHANNEL`. A server's id may contain dots, and one of another node a colon; where that
//! would end the server's part it is escaped as `~`, which no id contains. So each name identifies one set of one
//! server.

use mgp_protocol::ids::ServerId;

/// Escapes the separator within a server's id.
const ESCAPE: char = '~';

/// The name of a server's set, for agents.
#[must_use]
pub fn set_name(server: &ServerId, set: &str) -> String {
    join(server, '.', set)
}

/// The server and the set of this name; `None` for an invalid name.
#[must_use]
pub fn parse_set(name: &str) -> Option<(ServerId, &str)> {
    split(name, '.')
}

/// The name of a server's channel, for agents.
#[must_use]
pub fn channel_name(server: &ServerId, channel: &str) -> String {
    join(server, ':', channel)
}

/// The server and the channel of this name; `None` for an invalid name.
#[must_use]
pub fn parse_channel(name: &str) -> Option<(ServerId, &str)> {
    split(name, ':')
}

fn join(server: &ServerId, separator: char, local_name: &str) -> String {
    let server = server.as_str().replace(separator, &ESCAPE.to_string());
    format!("{server}{separator}{local_name}")
}

fn split(name: &str, separator: char) -> Option<(ServerId, &str)> {
    let (server, local_name) = name.split_once(separator)?;
    let id = server.replace(ESCAPE, &separator.to_string());
    let id = ServerId::parse_local_or_remote(&id).ok()?;
    (!local_name.is_empty() && join(&id, separator, local_name) == name).then_some((id, local_name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_name_stands_for_one_thing() {
        let ids = ["memory", "mind.cerebras", "a-b_c"].map(ServerId::new);
        for id in &ids {
            let name = set_name(id, "memory.retrieval");
            assert_eq!(parse_set(&name), Some((id.clone(), "memory.retrieval")));
            let name = channel_name(id, "discord:#general");
            assert_eq!(parse_channel(&name), Some((id.clone(), "discord:#general")));
        }
        assert_eq!(set_name(&ids[1], "a"), "mind~cerebras.a");
        for none in ["memory", ".a", "memory.", "", "a b.c", "Ünï.c", "a/b/c.d"] {
            assert_eq!(parse_set(none), None, "{none}");
        }
        assert_eq!(parse_channel("memory.a"), None);
    }

    proptest! {
        /// Two things never have one name.
        #[test]
        fn names_never_collide(
            a in "[a-z][a-z0-9._-]{0,8}", b in "[a-z][a-z0-9._-]{0,8}",
            x in "[a-z:.#~]{1,8}", y in "[a-z:.#~]{1,8}",
        ) {
            if let (Ok(a), Ok(b)) = (ServerId::parse(&a), ServerId::parse(&b)) {
                prop_assert_eq!(set_name(&a, &x) == set_name(&b, &y), a == b && x == y);
                prop_assert_eq!(channel_name(&a, &x) == channel_name(&b, &y), a == b && x == y);
                let name = channel_name(&a, &x);
                prop_assert_eq!(parse_channel(&name), Some((a, x.as_str())));
            }
        }
    }
}
