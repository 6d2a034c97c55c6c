//! Agents that ask one another: no chain of them is long, and none comes back to where it began.

use std::collections::{BTreeMap, BTreeSet};

use mgp_protocol::ids::AgentId;

/// Longest chain: one asks, who is asked asks, and that one once more.
pub const DEPTH_MAX: usize = 3;
/// Asks under way of one agent.
const OF_ONE_MAX: usize = 8;
/// Asks under way of all.
const ALL_MAX: usize = 256;

/// Who may ask whom: the agents that answer, each with those it answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnsweringAgents(pub BTreeMap<AgentId, AnsweredAgents>);

/// Whom an agent answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnsweredAgents {
    /// Every agent.
    All,
    /// These.
    These(BTreeSet<AgentId>),
}

impl AnsweringAgents {
    /// True when an agent agreed to be asked by anybody.
    #[must_use]
    pub fn agreed(&self, target: &AgentId) -> bool {
        self.0.contains_key(target)
    }

    /// True when `target` agreed to be asked by `asker`.
    #[must_use]
    pub fn answers(&self, target: &AgentId, asker: &AgentId) -> bool {
        match self.0.get(target) {
            None => false,
            Some(AnsweredAgents::All) => true,
            Some(AnsweredAgents::These(agents)) => agents.contains(asker),
        }
    }
}

/// Why an agent may not ask another one now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAskable {
    /// It is the same one.
    #[error("an agent does not ask itself")]
    Itself,
    /// It waits for this very answer.
    #[error("that agent waits for an answer of yours, directly or through others: answer it first")]
    Circle,
    /// [`DEPTH_MAX`].
    #[error(
        "you are asked by an agent that is itself asked: a chain of {DEPTH_MAX} goes no further"
    )]
    TooDeep,
    /// A bound.
    #[error("too many agents are being asked; try again when one has answered")]
    TooMany,
}

/// One ask under way; never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskNumber(u64);

#[derive(Clone, Debug)]
struct AskUnderWay {
    number: AskNumber,
    asker: AgentId,
    target: AgentId,
}

/// The asks under way.
///
/// Which of the questions to it an agent works on when it asks is not known, so the longest chain that
/// leads to it counts.
#[derive(Clone, Debug, Default)]
pub struct AgentAsks {
    under_way: Vec<AskUnderWay>,
    numbers: u64,
}

impl AgentAsks {
    /// One agent asks another.
    ///
    /// # Errors
    /// [`NotAskable`].
    pub fn begin(&mut self, asker: &AgentId, target: &AgentId) -> Result<AskNumber, NotAskable> {
        if asker == target {
            return Err(NotAskable::Itself);
        }
        let of_it = self.under_way.iter().filter(|ask| ask.asker == *asker);
        if of_it.count() >= OF_ONE_MAX || self.under_way.len() >= ALL_MAX {
            return Err(NotAskable::TooMany);
        }
        if self.leads(target, asker) {
            return Err(NotAskable::Circle);
        }
        if self.depth_to(asker) + 1 + self.depth_from(target) > DEPTH_MAX {
            return Err(NotAskable::TooDeep);
        }
        self.numbers += 1;
        let number = AskNumber(self.numbers);
        self.under_way.push(AskUnderWay {
            number,
            asker: asker.clone(),
            target: target.clone(),
        });
        Ok(number)
    }

    /// It is answered, or taken back.
    pub fn end(&mut self, number: AskNumber) {
        self.under_way.retain(|ask| ask.number != number);
    }

    /// True when one agent waits for another, directly or through others.
    fn leads(&self, from: &AgentId, to: &AgentId) -> bool {
        let mut asks = self.under_way.iter().filter(|ask| ask.asker == *from);
        asks.any(|ask| ask.target == *to || self.leads(&ask.target, to))
    }

    /// The longest chain that ends in an agent.
    fn depth_to(&self, agent: &AgentId) -> usize {
        let asks = self.under_way.iter().filter(|ask| ask.target == *agent);
        let longest = asks.map(|ask| 1 + self.depth_to(&ask.asker)).max();
        longest.unwrap_or(0)
    }

    /// The longest chain that begins with an agent.
    fn depth_from(&self, agent: &AgentId) -> usize {
        let asks = self.under_way.iter().filter(|ask| ask.asker == *agent);
        let longest = asks.map(|ask| 1 + self.depth_from(&ask.target)).max();
        longest.unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn agent(name: &str) -> AgentId {
        AgentId::new(format!("agent.{name}"))
    }

    #[test]
    fn a_chain_is_short_and_no_circle() {
        let mut asks = AgentAsks::default();
        let mut ask = |from: &str, to: &str| asks.begin(&agent(from), &agent(to));
        assert_eq!(ask("a", "a"), Err(NotAskable::Itself));
        ask("a", "b").unwrap();
        ask("b", "c").unwrap();
        assert_eq!(ask("c", "a"), Err(NotAskable::Circle));
        let last = ask("c", "d").unwrap();
        assert_eq!(ask("d", "e"), Err(NotAskable::TooDeep));
        assert_eq!(ask("x", "a"), Err(NotAskable::TooDeep));
        ask("x", "d").unwrap();
        asks.end(last);
        asks.begin(&agent("d"), &agent("e")).unwrap();
    }

    #[test]
    fn one_alone_does_not_ask_without_end() {
        let mut asks = AgentAsks::default();
        for n in 0..OF_ONE_MAX {
            asks.begin(&agent("a"), &agent(&format!("t{n}"))).unwrap();
        }
        assert_eq!(
            asks.begin(&agent("a"), &agent("z")),
            Err(NotAskable::TooMany)
        );
        asks.begin(&agent("b"), &agent("z")).unwrap();
    }

    #[test]
    fn an_agent_answers_whom_it_agreed_to_answer() {
        let some = BTreeSet::from([agent("a")]);
        let all = AnsweringAgents(BTreeMap::from([
            (agent("b"), AnsweredAgents::These(some)),
            (agent("c"), AnsweredAgents::All),
        ]));
        let answers = |target, asker| all.answers(&agent(target), &agent(asker));
        assert!(answers("b", "a") && !answers("b", "x"));
        assert!(answers("c", "x") && !answers("a", "b"));
        assert!(all.agreed(&agent("b")) && !all.agreed(&agent("a")));
    }

    proptest! {
        /// Whatever is asked and answered, no chain is longer than allowed and none is a circle.
        #[test]
        fn chains_stay_short(
            steps in proptest::collection::vec((0u8..6, 0u8..6, any::<bool>()), 0..80)
        ) {
            let mut asks = AgentAsks::default();
            for (from, to, ends) in steps {
                if ends && !asks.under_way.is_empty() {
                    let at = usize::from(from) % asks.under_way.len();
                    asks.end(asks.under_way[at].number);
                    continue;
                }
                let _ = asks.begin(&agent(&from.to_string()), &agent(&to.to_string()));
                let mut chains: Vec<Vec<&AgentId>> = asks
                    .under_way
                    .iter()
                    .map(|ask| vec![&ask.asker, &ask.target])
                    .collect();
                while let Some(chain) = chains.pop() {
                    prop_assert!(chain.len() <= DEPTH_MAX + 1);
                    let last = *chain.last().unwrap();
                    for next in asks.under_way.iter().filter(|ask| ask.asker == *last) {
                        prop_assert!(!chain.contains(&&next.target));
                        chains.push([chain.as_slice(), &[&next.target]].concat());
                    }
                }
            }
        }
    }
}
