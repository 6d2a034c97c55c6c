//! The local names of nodes. Nodes choose their names themselves, so two may choose the same one, or that of a server
//! of this node; the first one keeps it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use mgp_protocol::federation::hello::NodeName;
use mgp_protocol::ids::{NodeId, ServerId};
use serde::{Deserialize, Serialize};

/// Digits of the id that distinguish nodes of the same name.
const ID_DIGITS_MIN: usize = 6;

/// A node's name as used in the names of its tools: lowercase letters, digits and `-`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeHandle(Box<str>);

/// The names of all nodes, stored across restarts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeNames {
    handles: BTreeMap<NodeHandle, NodeId>,
}

/// Why a text identifies no node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NodeNameError {
    /// No node has this name.
    #[error("no other node is called {input:?}; there {}", render_known(.known))]
    Unknown {
        /// As it was typed.
        input: String,
        /// The known names.
        known: Vec<String>,
    },
    /// It is the prefix of more than one id.
    #[error("{0:?} begins the ids of several nodes: type more of it, or the name")]
    Ambiguous(String),
}

fn render_known(known: &[String]) -> String {
    if known.is_empty() {
        "are no other nodes".to_owned()
    } else {
        format!("are {}", known.join(", "))
    }
}

impl NodeHandle {
    /// The name itself.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NodeHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl NodeNames {
    /// Assigns a node the name it chose. If another node or a server of this node has the name, digits of the id are
    /// added.
    pub fn assign<'a>(
        &mut self,
        node: NodeId,
        name: &NodeName,
        servers: impl IntoIterator<Item = &'a ServerId>,
    ) -> NodeHandle {
        let servers: BTreeSet<String> = servers.into_iter().map(tool_name_prefix).collect();
        self.handles.retain(|_, held| *held != node);
        let free = |handle: &NodeHandle| {
            !self.handles.contains_key(handle) && !servers.contains(&*handle.0)
        };
        let plain = NodeHandle(name.as_str().into());
        let digits = node.to_string();
        let told_apart = (ID_DIGITS_MIN..=digits.len()).map(|most| {
            let digits = &digits[..most];
            NodeHandle(format!("{name}-{digits}").into())
        });
        let mut choices = std::iter::once(plain).chain(told_apart);
        let handle = choices.find(free);
        let handle = handle.expect("no two nodes have all digits in common");
        self.handles.insert(handle.clone(), node);
        handle
    }

    /// Removes a node that left the cluster.
    pub fn forget(&mut self, node: NodeId) {
        self.handles.retain(|_, held| *held != node);
    }

    /// The name of a node.
    #[must_use]
    pub fn handle_for(&self, node: NodeId) -> Option<&NodeHandle> {
        let mut all = self.handles.iter();
        all.find(|(_, held)| **held == node)
            .map(|(handle, _)| handle)
    }

    /// What a node is called, for people; enough of its id where it has no name here.
    #[must_use]
    pub fn render(&self, node: NodeId) -> String {
        self.handle_for(node)
            .map_or_else(|| node.short_id(), ToString::to_string)
    }

    /// All names, sorted.
    pub fn iter(&self) -> impl Iterator<Item = (&NodeHandle, NodeId)> {
        self.handles.iter().map(|(handle, node)| (handle, *node))
    }

    /// The node with this name.
    #[must_use]
    pub fn get(&self, handle: &str) -> Option<NodeId> {
        self.handles.get(&NodeHandle(handle.into())).copied()
    }

    /// Resolves what a person typed: a name, an id or its prefix.
    ///
    /// # Errors
    /// [`NodeNameError`] for an unknown or ambiguous text. Nothing is guessed.
    pub fn resolve(&self, typed: &str) -> Result<NodeId, NodeNameError> {
        if let Some(node) = self.get(typed) {
            return Ok(node);
        }
        let long = typed.len() >= ID_DIGITS_MIN;
        let begins = |node: &&NodeId| long && node.to_string().starts_with(typed);
        let mut nodes = self.handles.values().filter(begins);
        match (nodes.next(), nodes.next()) {
            (Some(node), None) => Ok(*node),
            (Some(_), Some(_)) => Err(NodeNameError::Ambiguous(typed.to_owned())),
            (None, _) => Err(NodeNameError::Unknown {
                input: typed.to_owned(),
                known: self.handles.keys().map(ToString::to_string).collect(),
            }),
        }
    }
}

/// The names of the nodes of a cluster, as the logs give them; nodes that were given the same name, for instance
/// during a network partition, get digits of their ids. The result depends on the logs alone, so that all nodes
/// agree, and neither node takes a name that used to mean the other.
#[must_use]
pub fn disambiguate_names(given: &BTreeMap<NodeId, NodeName>) -> BTreeMap<NodeId, NodeName> {
    let mut counts: BTreeMap<&NodeName, usize> = BTreeMap::new();
    for name in given.values() {
        *counts.entry(name).or_default() += 1;
    }
    let settled = given.iter().map(|(node, name)| {
        let alone = counts.get(name).is_none_or(|count| *count == 1);
        let name = if alone {
            name.clone()
        } else {
            with_id_suffix(name, *node)
        };
        (*node, name)
    });
    settled.collect()
}

/// A name with digits of the node's id.
fn with_id_suffix(name: &NodeName, node: NodeId) -> NodeName {
    let digits = &node.to_string()[..ID_DIGITS_MIN];
    let room = NodeName::MAX_LEN - ID_DIGITS_MIN - 1;
    let name: String = name.as_str().chars().take(room).collect();
    let both = format!("{}-{digits}", name.trim_end_matches('-'));
    NodeName::parse(&both).unwrap_or_else(|_| NodeName::from_hostname(&both))
}

/// A known name that differs from this one but looks like it. Names contain only lowercase letters, digits and `-`,
/// so that other scripts need no check.
#[must_use]
pub fn find_lookalike<'k>(name: &str, mut known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let shape = skeleton(name);
    known.find(|known| *known != name && self::skeleton(known) == shape)
}

/// Reduces a name so that names that look alike are equal.
fn skeleton(name: &str) -> String {
    let letters = name.chars().filter(|c| *c != '-').map(|c| match c {
        '0' => 'o',
        '1' | 'i' => 'l',
        '2' => 'z',
        '5' => 's',
        '8' => 'b',
        c => c,
    });
    let letters: String = letters.collect();
    letters
        .replace("rn", "m")
        .replace("vv", "w")
        .replace("cl", "d")
}

/// The prefix of a server's tool names.
fn tool_name_prefix(server: &ServerId) -> String {
    server.as_str().replace('.', "_").to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(n: u8) -> NodeId {
        NodeId([n; 32])
    }

    fn name(text: &str) -> NodeName {
        NodeName::parse(text).unwrap()
    }

    /// Whoever came first where, and whatever each node has seen: all call the two alike, and none takes the other's name.
    #[test]
    fn two_nodes_of_one_name_are_called_alike_everywhere() {
        let given: BTreeMap<NodeId, NodeName> = [(1, "nas"), (2, "nas"), (3, "desk")]
            .map(|(n, called)| (node(n), name(called)))
            .into();
        let settled = disambiguate_names(&given);
        let called = |n| settled[&node(n)].as_str().to_owned();
        assert_eq!(called(1), "nas-010101");
        assert_eq!((called(2), called(3)), ("nas-020202".into(), "desk".into()));
        // Each side of the cut knew one of them as nas.
        for first in [1, 2] {
            let mut names = NodeNames::default();
            names.assign(node(first), &name("nas"), []);
            for (node, name) in &settled {
                names.assign(*node, name, []);
            }
            assert_eq!(
                names.get("nas"),
                None,
                "a name leads to nobody, or to whom it led"
            );
            assert_eq!(names.get("nas-010101"), Some(node(1)));
        }
        // One gets another name, and the other one is nas everywhere, also where it was not.
        let mut names = NodeNames::default();
        names.assign(node(1), &settled[&node(1)], []);
        assert_eq!(names.assign(node(1), &name("nas"), []).as_str(), "nas");
        let long = name("a-node-with-a-long-name0");
        let both = [(node(1), long.clone()), (node(2), long)].into();
        let settled = disambiguate_names(&both);
        assert_ne!(settled[&node(1)], settled[&node(2)]);
    }

    /// PRJ-008: a name leads to whom it led before, whoever comes.
    #[test]
    fn who_has_a_name_keeps_it() {
        let mut names = NodeNames::default();
        let files = [ServerId::new("Files")];
        assert_eq!(names.assign(node(1), &name("nas"), &files).as_str(), "nas");
        assert_eq!(
            names.assign(node(2), &name("nas"), &files).as_str(),
            "nas-020202"
        );
        assert_eq!(
            names.assign(node(3), &name("files"), &files).as_str(),
            "files-030303"
        );
        assert_eq!(names.assign(node(1), &name("nas"), &files).as_str(), "nas");
        assert_eq!(
            names.assign(node(2), &name("nas"), []).as_str(),
            "nas-020202"
        );
        assert_eq!(names.assign(node(2), &name("attic"), []).as_str(), "attic");
        names.forget(node(1));
        assert_eq!(
            (names.get("nas"), names.get("attic")),
            (None, Some(node(2)))
        );
        let bytes = rmp_serde::to_vec_named(&names).unwrap();
        assert_eq!(rmp_serde::from_slice::<NodeNames>(&bytes).unwrap(), names);
    }

    /// FED-061: a server of this node takes its name back: what is local never changes.
    #[test]
    fn a_local_server_of_the_name_comes_first() {
        let mut names = NodeNames::default();
        names.assign(node(1), &name("nas"), []);
        let server = [ServerId::new("nas")];
        assert_eq!(
            names.assign(node(1), &name("nas"), &server).as_str(),
            "nas-010101"
        );
    }

    /// Whoever reads a list of names is told of two that are hard to tell apart.
    #[test]
    fn a_name_that_may_be_taken_for_another_is_told() {
        let known = ["nas", "desk", "mill-1", "node0"];
        let like = |name| find_lookalike(name, known.into_iter());
        for (name, like_it) in [
            ("na5", "nas"),
            ("n-as", "nas"),
            ("clesk", "desk"),
            ("rnill-l", "mill-1"),
            ("nodeo", "node0"),
        ] {
            assert_eq!(like(name), Some(like_it), "{name}");
        }
        for plain in ["nas", "attic", "nas-2", "desks"] {
            assert_eq!(like(plain), None, "{plain}");
        }
        for other_script in ["n\u{430}s", "nas\u{200b}", "\u{ff4e}as", "NAS", "n\u{e1}s"] {
            assert!(NodeName::parse(other_script).is_err(), "{other_script}");
        }
    }

    #[test]
    fn what_is_typed_is_read_and_never_guessed() {
        let mut names = NodeNames::default();
        names.assign(node(0x11), &name("nas"), []);
        let mut other = [0x11; 32];
        other[31] = 0;
        names.assign(NodeId(other), &name("attic"), []);
        assert_eq!(names.resolve("nas"), Ok(node(0x11)));
        assert_eq!(names.resolve(&node(0x11).to_string()), Ok(node(0x11)));
        assert_eq!(
            names.resolve("11111111"),
            Err(NodeNameError::Ambiguous("11111111".to_owned()))
        );
        let words = names.resolve("naz").unwrap_err().to_string();
        assert!(words.contains("attic, nas"), "{words}");
        assert!(names.resolve("1").is_err() && names.resolve("").is_err());
    }
}
