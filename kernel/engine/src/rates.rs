//! How many calls an agent may make (MGP §14.3: 3000 and 3002): so many a minute, so many a day.
//!
//! Windows begin with the first call and end after their time; the next call begins another.

use std::collections::HashMap;
use std::time::Duration;

use mgp_protocol::ids::AgentId;
use mgp_protocol::refusal::Denial;

use crate::moment::Moment;

/// Agents counted at once. More than one person names; past it, those whose windows are over are
/// forgotten, and a call of one that finds no place is refused.
pub const AGENTS_MAX: usize = 4096;

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(86_400);

/// What each agent may do; 0 sets no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateRules {
    /// Calls of tools a minute.
    pub per_minute: u64,
    /// Calls of tools a day.
    pub per_day: u64,
}

impl RateRules {
    /// True when there is nothing to count.
    #[must_use]
    pub fn is_off(self) -> bool {
        self.per_minute == 0 && self.per_day == 0
    }
}

/// Why a call is not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TooMany {
    /// In this minute.
    Minute {
        /// How many there were, this one included.
        current: u64,
        /// When the next window begins.
        after: Duration,
    },
    /// On this day.
    Day,
    /// [`AGENTS_MAX`] agents are counted already.
    Agents,
}

#[derive(Clone, Copy, Debug)]
struct Window {
    began: Moment,
    calls: u64,
}

impl Window {
    /// The window at `now`: this one, or a new one when it is over.
    fn at(self, now: Moment, lasts: Duration) -> Self {
        match now.since(self.began) < lasts {
            true => self,
            false => Self {
                began: now,
                calls: 0,
            },
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Counted {
    minute: Window,
    day: Window,
}

/// The calls of all agents, counted.
#[derive(Debug)]
pub struct Rates {
    rules: RateRules,
    agents: HashMap<AgentId, Counted>,
}

impl Rates {
    /// Nobody has called yet.
    #[must_use]
    pub fn new(rules: RateRules) -> Self {
        Self {
            rules,
            agents: HashMap::new(),
        }
    }

    /// The rules.
    #[must_use]
    pub fn rules(&self) -> RateRules {
        self.rules
    }

    /// An agent wants to make one more call. One that is refused counts toward no quota, so that a
    /// caller that waits is served.
    ///
    /// # Errors
    /// [`TooMany`].
    pub fn call(&mut self, agent: &AgentId, now: Moment) -> Result<(), TooMany> {
        let rules = self.rules;
        let counted = self.counted(agent, now)?;
        counted.minute = counted.minute.at(now, MINUTE);
        counted.day = counted.day.at(now, DAY);
        let full = |calls: u64, most: u64| most > 0 && calls >= most;
        if full(counted.day.calls, rules.per_day) {
            return Err(TooMany::Day);
        }
        counted.minute.calls = counted.minute.calls.saturating_add(1);
        if full(counted.minute.calls - 1, rules.per_minute) {
            return Err(TooMany::Minute {
                current: counted.minute.calls,
                after: MINUTE.saturating_sub(now.since(counted.minute.began)),
            });
        }
        counted.day.calls = counted.day.calls.saturating_add(1);
        Ok(())
    }

    fn counted(&mut self, agent: &AgentId, now: Moment) -> Result<&mut Counted, TooMany> {
        if !self.agents.contains_key(agent) {
            if self.agents.len() >= AGENTS_MAX {
                let longest = match self.rules.per_day {
                    0 => MINUTE,
                    _ => DAY,
                };
                self.agents
                    .retain(|_, counted| now.since(counted.day.began) < longest);
            }
            if self.agents.len() >= AGENTS_MAX {
                return Err(TooMany::Agents);
            }
        }
        let window = Window {
            began: now,
            calls: 0,
        };
        Ok(self.agents.entry(agent.clone()).or_insert(Counted {
            minute: window,
            day: window,
        }))
    }
}

impl TooMany {
    /// What the agent is told; `None` where it is not the agent that is the reason.
    #[must_use]
    pub fn denial(self, rules: RateRules) -> Option<Denial> {
        match self {
            Self::Minute { current, after } => Some(Denial::RateLimited {
                limit: rules.per_minute,
                window_secs: MINUTE.as_secs(),
                current,
                retry_after_ms: u64::try_from(after.as_millis()).unwrap_or(u64::MAX),
            }),
            Self::Day => Some(Denial::OverQuota {
                what: "calls of this agent a day".into(),
                limit: rules.per_day,
            }),
            Self::Agents => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Moment {
        Moment::new(Duration::from_secs(secs))
    }

    fn rates(per_minute: u64, per_day: u64) -> Rates {
        Rates::new(RateRules {
            per_minute,
            per_day,
        })
    }

    /// MGP-196: the limit, when the next call is taken, and that it then is.
    #[test]
    fn a_minute_has_so_many_calls() {
        let (mut rates, agent) = (rates(2, 0), AgentId::new("a"));
        assert_eq!(rates.call(&agent, at(10)), Ok(()));
        assert_eq!(rates.call(&agent, at(20)), Ok(()));
        let after = Duration::from_secs(40);
        let too_many = TooMany::Minute { current: 3, after };
        assert_eq!(rates.call(&agent, at(30)), Err(too_many));
        assert_eq!(rates.call(&AgentId::new("b"), at(30)), Ok(()));
        assert!(rates.call(&agent, at(69)).is_err());
        assert_eq!(rates.call(&agent, at(70)), Ok(()));
    }

    /// MGP-198: a day has so many, and refused ones are not among them.
    #[test]
    fn a_day_has_so_many_calls() {
        let (mut rates, agent) = (rates(1, 2), AgentId::new("a"));
        assert_eq!(rates.call(&agent, at(0)), Ok(()));
        assert!(rates.call(&agent, at(1)).is_err());
        assert_eq!(rates.call(&agent, at(60)), Ok(()));
        assert_eq!(rates.call(&agent, at(120)), Err(TooMany::Day));
        assert_eq!(rates.call(&agent, at(86_400)), Ok(()));
    }

    /// The table has a bound, and those whose time is over make room.
    #[test]
    fn so_many_agents_are_counted() {
        let mut rates = rates(1, 0);
        for n in 0..AGENTS_MAX {
            assert_eq!(rates.call(&AgentId::new(format!("a{n}")), at(0)), Ok(()));
        }
        let late = AgentId::new("late");
        assert_eq!(rates.call(&late, at(59)), Err(TooMany::Agents));
        assert_eq!(rates.call(&late, at(60)), Ok(()));
        assert_eq!(rates.agents.len(), 1);
    }
}
