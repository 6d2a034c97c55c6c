//! Daily token budgets for the inferences of servers.
//!
//! A day begins at midnight UTC. The most that an inference may use is reserved and persisted before it is sent, and
//! corrected by its usage: the count covers everything that was sent, whatever fails. After a kill, requests in flight
//! count in full.

use std::collections::BTreeMap;

use mgp_protocol::ids::ServerId;
use mgp_protocol::mcpl::inference::{PromptPart, PromptTurn};
use serde::{Deserialize, Serialize};

/// Servers counted in one day; a further one is rejected until the next.
pub(crate) const SERVERS_MAX: usize = 4096;

/// Overhead of a turn: its role and delimiters.
const TURN_TOKENS: u64 = 16;
/// Least tokens of an image; no known model counts more for one of usual size.
const IMAGE_TOKENS: u64 = 8192;
/// Bytes per token of a larger image.
const IMAGE_BYTES: u64 = 64;

/// Daily limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetRules {
    /// Tokens per day for each server.
    pub per_server: u64,
    /// Overrides by server.
    pub servers: BTreeMap<ServerId, u64>,
    /// Tokens per day for all servers together.
    pub total: u64,
}

impl Default for BudgetRules {
    fn default() -> Self {
        Self {
            per_server: 200_000,
            servers: BTreeMap::new(),
            total: 1_000_000,
        }
    }
}

/// Tokens reserved for one inference.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "what is set aside stays so until it is settled"]
pub struct TokenReservation {
    server: ServerId,
    day: u64,
    tokens: u64,
}

/// The rest of the day's budget is too small.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "it may take {wanted} tokens, and {left} of today's {limit} {whose} are left; the day ends at midnight UTC"
)]
pub struct BudgetExceeded {
    /// What it may take at most.
    pub wanted: u64,
    /// What is left.
    pub(crate) left: u64,
    /// Of how many.
    pub(crate) limit: u64,
    /// For the server alone, or for all.
    pub(crate) whose: &'static str,
}

/// Today's usage; persisted as JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenBudget {
    /// Days since 1970-01-01.
    day: u64,
    /// By server, reservations included. Sets, conversations and instances of a server share one count.
    taken: BTreeMap<ServerId, u64>,
}

impl TokenBudget {
    /// Reserves tokens; the caller persists this before it sends.
    ///
    /// # Errors
    /// [`BudgetExceeded`].
    pub fn reserve(
        &mut self,
        rules: &BudgetRules,
        server: &ServerId,
        tokens: u64,
        day: u64,
    ) -> Result<TokenReservation, BudgetExceeded> {
        // A clock set back starts no new day.
        if day > self.day {
            self.day = day;
            self.taken.clear();
        }
        let server = server.server();
        let none = |limit: u64, taken: u64, whose| {
            let left = limit.saturating_sub(taken);
            (tokens > left).then_some(BudgetExceeded {
                wanted: tokens,
                left,
                limit,
                whose,
            })
        };
        let used_by_server = self.taken.get(&server).copied();
        let limit = rules
            .servers
            .get(&server)
            .copied()
            .unwrap_or(rules.per_server);
        let all = self
            .taken
            .values()
            .fold(0_u64, |sum, n| sum.saturating_add(*n));
        let refused = none(limit, used_by_server.unwrap_or(0), "for this server")
            .or_else(|| none(rules.total, all, "for all servers"));
        if let Some(refused) = refused {
            return Err(refused);
        }
        if used_by_server.is_none() && self.taken.len() >= SERVERS_MAX {
            return Err(BudgetExceeded {
                wanted: tokens,
                left: 0,
                limit,
                whose: "for this server",
            });
        }
        *self.taken.entry(server.clone()).or_default() += tokens;
        Ok(TokenReservation {
            server,
            day: self.day,
            tokens,
        })
    }

    /// Corrects a reservation by the usage; `None` if unknown, which counts in full. Reservations of another day are
    /// ignored.
    pub fn settle(&mut self, aside: TokenReservation, took: Option<u64>) {
        let (Some(taken), Some(took)) = (self.taken.get_mut(&aside.server), took) else {
            return;
        };
        if aside.day == self.day {
            *taken = taken.saturating_sub(aside.tokens).saturating_add(took);
        }
    }

    /// A server's usage of today, reservations included.
    #[must_use]
    #[cfg(test)]
    pub(crate) fn used(&self, server: &ServerId) -> u64 {
        self.taken.get(&server.server()).copied().unwrap_or(0)
    }

    /// The form to persist.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a budget is always JSON")
    }

    /// Restores the persisted form.
    ///
    /// # Errors
    /// As serde_json: the file is damaged.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }
}

/// Upper bound of the tokens of a prompt and its answer: no tokenizer makes more than one per byte.
#[must_use]
pub fn max_usage(turns: &[PromptTurn], max_tokens: u64) -> u64 {
    let part = |part: &PromptPart| match part {
        PromptPart::Text(text) => text.len() as u64,
        PromptPart::Image { data, .. } => IMAGE_TOKENS.max(data.len() as u64 / IMAGE_BYTES),
        PromptPart::Other(_) => IMAGE_TOKENS,
    };
    let turn = |turn: &PromptTurn| TURN_TOKENS + turn.parts.iter().map(part).sum::<u64>();
    let prompt: u64 = turns.iter().map(turn).sum();
    prompt.saturating_add(max_tokens)
}

#[cfg(test)]
mod tests {
    use mgp_protocol::mcpl::inference::PromptRole;

    use super::*;

    fn rules(each: u64, all: u64) -> BudgetRules {
        BudgetRules {
            per_server: each,
            servers: [(ServerId::new("rich"), 5000)].into(),
            total: all,
        }
    }

    fn server(id: &str) -> ServerId {
        ServerId::new(id)
    }

    /// Reservations keep concurrent requests within the limit.
    #[test]
    fn requests_beyond_the_budget_are_rejected_before_sending() {
        let (rules, mut budget) = (rules(1000, 10_000), TokenBudget::default());
        let mut ask = |id: &str, tokens| budget.reserve(&rules, &server(id), tokens, 7);
        let first = ask("a", 600).unwrap();
        let refused = ask("a", 401).unwrap_err();
        assert_eq!((refused.left, refused.limit), (400, 1000));
        let second = ask("a", 400).unwrap();
        assert!(ask("a", 1).is_err());
        assert!(ask("b", 1000).is_ok() && ask("rich", 5000).is_ok() && ask("rich", 1).is_err());
        budget.settle(first, Some(100));
        budget.settle(second, None);
        assert_eq!(budget.used(&server("a")), 500);
        // A higher usage counts as reported.
        let third = budget.reserve(&rules, &server("a"), 500, 7).unwrap();
        budget.settle(third, Some(u64::MAX));
        assert!(budget.reserve(&rules, &server("a"), 0, 7).is_ok());
        assert!(budget.reserve(&rules, &server("a"), 1, 7).is_err());
    }

    /// Names, instances and restarts do not enlarge the budget.
    #[test]
    fn a_budget_is_not_evaded_by_names_or_restarts() {
        let (rules, mut budget) = (rules(1000, 2500), TokenBudget::default());
        let first = budget.reserve(&rules, &server("a"), 900, 7);
        let instance = server("a").instance("agent.bob");
        assert!(budget.reserve(&rules, &instance, 200, 7).is_err());
        // Killed now: reservations count.
        drop(first);
        let mut budget = TokenBudget::parse(&budget.to_json()).unwrap();
        assert!(budget.reserve(&rules, &server("a"), 200, 7).is_err());
        for n in 0..100 {
            let _ = budget.reserve(&rules, &server(&format!("n{n}")), 400, 7);
        }
        let all: u64 = budget.taken.values().sum();
        assert!(all <= 2500, "{all}");
    }

    /// A clock set back does not repeat a day.
    #[test]
    fn a_new_day_begins_once() {
        let (rules, mut budget) = (rules(1000, 10_000), TokenBudget::default());
        let late = budget.reserve(&rules, &server("a"), 1000, 7).unwrap();
        assert!(budget.reserve(&rules, &server("a"), 1, 6).is_err());
        let next = budget.reserve(&rules, &server("a"), 800, 8).unwrap();
        budget.settle(late, Some(0));
        assert_eq!(budget.used(&server("a")), 800);
        budget.settle(next, Some(1));
        assert!(budget.reserve(&rules, &server("a"), 1000, 7).is_err());
        assert_eq!(budget.used(&server("a")), 1);
    }

    #[test]
    fn the_table_is_bounded() {
        let (rules, mut budget) = (rules(10, u64::MAX), TokenBudget::default());
        for n in 0..SERVERS_MAX {
            let _ = budget
                .reserve(&rules, &server(&format!("s{n}")), 1, 1)
                .unwrap();
        }
        assert!(budget.reserve(&rules, &server("more"), 1, 1).is_err());
        assert!(budget.reserve(&rules, &server("s0"), 1, 1).is_ok());
        assert!(TokenBudget::parse("{").is_err());
    }

    #[test]
    fn the_ceiling_counts_bytes_turns_and_the_answer() {
        let turn = |part| PromptTurn {
            role: PromptRole::User,
            parts: vec![part],
        };
        let text = turn(PromptPart::Text("äöü".to_owned()));
        assert_eq!(
            max_usage(&[text.clone(), text], 100),
            2 * (TURN_TOKENS + 6) + 100
        );
        let image = |bytes| {
            let (data, mime_type) = ("x".repeat(bytes), "image/png".to_owned());
            max_usage(&[turn(PromptPart::Image { data, mime_type })], 0)
        };
        assert_eq!(image(10), IMAGE_TOKENS + TURN_TOKENS);
        assert_eq!(image(1 << 20), (1 << 20) / IMAGE_BYTES + TURN_TOKENS);
        assert_eq!(max_usage(&[], u64::MAX), u64::MAX);
    }
}
