//! Validates the agent ids that another node reports.

use crate::ids::{AgentId, NodeAgent, NodeId, describe_char};

impl NodeAgent {
    /// Accepts only ids that [`AgentId`] could have produced on that node, because the id appears in
    /// lists, log lines and rules.
    ///
    /// # Errors
    /// [`BadNodeAgent`].
    pub fn from_reported(node: NodeId, agent: &str) -> Result<Self, BadNodeAgent> {
        let name = agent.strip_prefix(AgentId::PREFIX);
        let name = name.ok_or(BadNodeAgent::Prefix)?;
        if name.is_empty() || name.len() > AgentId::MAX_NAME {
            return Err(BadNodeAgent::Length(name.len()));
        }
        // A holder of the kernel's token is an agent; the kernel and its operator are not.
        if ["operator", "kernel"].contains(&name.to_ascii_lowercase().as_str()) {
            return Err(BadNodeAgent::Kernel);
        }
        let mut rest = name;
        while let Some(c) = rest.chars().next() {
            let consumed = match c {
                '.' | '_' | '-' => 1,
                _ if c.is_ascii_alphanumeric() => 1,
                '%' if is_escape(rest.as_bytes()) => 3,
                _ => return Err(BadNodeAgent::Character(c)),
            };
            rest = &rest[consumed..];
        }
        let agent = AgentId::new(agent);
        Ok(Self { node, agent })
    }
}

/// True for `%` and two digits of a byte that must be escaped, so that an agent has only one name.
fn is_escape(text: &[u8]) -> bool {
    let digit = |byte: u8| {
        char::from(byte)
            .to_digit(16)
            .filter(|_| !byte.is_ascii_lowercase())
    };
    let [b'%', high, low, ..] = *text else {
        return false;
    };
    let (Some(high), Some(low)) = (digit(high), digit(low)) else {
        return false;
    };
    let byte = char::from_u32(high << 4 | low);
    byte.is_none_or(|c| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')))
}

/// An invalid agent id of another node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadNodeAgent {
    /// It does not begin like an agent's id.
    #[error("it does not begin with \"agent.\"")]
    Prefix,
    /// Empty or overlong.
    #[error("a name of {0} characters")]
    Length(usize),
    /// A character that no node writes.
    #[error("{} in its name", describe_char(*.0))]
    Character(char),
    /// The kernel and its operator make no calls to other nodes.
    #[error("it is the name of a kernel or its operator")]
    Kernel,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only ids that a node can derive from the names of its agents are accepted.
    #[test]
    fn id_that_no_node_generates_is_rejected() {
        let home = NodeId([1; 32]);
        let parse = |agent: &str| NodeAgent::from_reported(home, agent);
        for name in ["alice", "auth0|7@b", "a%b", "agent.alice", "ä", "A.b_c-"] {
            let reported = AgentId::from_subject(name).unwrap();
            assert_eq!(parse(reported.as_str()).unwrap().agent, reported);
        }
        assert!(parse(AgentId::LOCAL).is_ok() && parse(AgentId::ANONYMOUS).is_ok());
        assert_eq!(parse("agent.Operator"), Err(BadNodeAgent::Kernel));
        assert_eq!(parse("alice"), Err(BadNodeAgent::Prefix));
        assert_eq!(parse("agent."), Err(BadNodeAgent::Length(0)));
        let long = format!("agent.{}", "a".repeat(129));
        assert_eq!(parse(&long), Err(BadNodeAgent::Length(129)));
        for bad in [
            "a b", "a\nb", "a@b", "ä", "a%", "a%4", "a%4g", "a%7c", "a%41",
        ] {
            let refused = parse(&format!("agent.{bad}"));
            assert!(
                matches!(refused, Err(BadNodeAgent::Character(_))),
                "{bad:?}"
            );
        }
        assert!(parse("agent.a%C3%A4").is_ok());
    }

    /// FED-043.
    #[test]
    fn same_name_on_two_nodes_is_two_agents() {
        let at = |n: u8| NodeAgent::from_reported(NodeId([n; 32]), "agent.local").unwrap();
        assert_ne!(at(1), at(2));
        assert_ne!(
            AgentId::from_node_agent(&at(1)),
            AgentId::from_node_agent(&at(2))
        );
    }
}
