//! What a server may do (MGP §3): the gate it stands at from its first declaration on.
//!
//! A permission nobody decided on is one it does not have. The operator's decisions are grants of
//! the log, whose subject is the server; the gate is opened with those that count.

mod records;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use mgp_protocol::mgp::access::Permission;
use mgp_protocol::mgp::permission::{Ask, Decision, Given, PermissionType, Policy, Verdict};

pub use self::records::{Recorded, record, recorded};
use crate::timestamps::rfc3339_ms;

/// Most permissions a server can need. What is beyond is not asked for, and it does not have it.
pub const NEEDS_MAX: usize = 256;
/// Who decided where no person did.
const CONFIGURATION: &str = "configuration";
const POLICY: &str = "policy";

/// How a server's permissions are decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PermissionRules {
    /// What happens with what nobody decided on (§3.3).
    pub policy: Policy,
    /// Approved by the configuration, under each policy.
    pub configured: BTreeSet<PermissionType>,
    /// Asked for even under `auto_approve` (later drafts, §3.3).
    pub exceptions: BTreeSet<PermissionType>,
    /// A server that is denied anything is not run at all (§8.1); else it runs without.
    pub all_or_nothing: bool,
}

impl Default for PermissionRules {
    /// A person is asked, and no server is turned away.
    fn default() -> Self {
        Self {
            policy: Policy::Interactive,
            configured: BTreeSet::new(),
            exceptions: BTreeSet::new(),
            all_or_nothing: false,
        }
    }
}

/// Where one permission stands.
#[derive(Clone, Debug, PartialEq, Eq)]
enum PermissionState {
    /// Asked for; the server does not start before it is answered.
    Pending {
        request: String,
    },
    /// Put off; the server runs without it meanwhile.
    Deferred {
        request: String,
    },
    Approved {
        by: String,
        until_ms: Option<u64>,
    },
    Denied {
        by: String,
    },
    /// Ended or taken back; asked for again when it is needed again.
    Lapsed,
}

/// What follows; to be told, queued and audited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PermissionEffect {
    /// A question for the operator's queue, and for a server that negotiated it.
    Ask(Ask),
    /// The question needs no answer any more.
    Withdraw(String),
    /// PERMISSION_GRANTED.
    Granted {
        /// What.
        permission: PermissionType,
        /// By whom.
        by: String,
        /// Until when, in milliseconds since 1970.
        until_ms: Option<u64>,
    },
    /// PERMISSION_DENIED.
    Denied {
        /// What.
        permission: PermissionType,
        /// By whom.
        by: String,
    },
    /// PERMISSION_REVOKED: taken back by somebody, or ended by itself (`by` is `None`). Calls that
    /// wait are asked about again.
    Revoked {
        /// What.
        permission: PermissionType,
        /// By whom.
        by: Option<String>,
    },
}

/// Where the server stands as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PermissionStanding {
    /// It stays `connecting` until the operator has answered.
    Waiting(Vec<PermissionType>),
    /// It may run, with what it has.
    Open,
    /// It was denied what it needs and is not run.
    Rejected(Vec<PermissionType>),
}

/// A call needs what its server does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server lacks {} ({})", names(.permissions), if *.waiting { "it waits for the operator: `mgp pending`" } else { "denied, ended or never asked for" })]
pub struct Lacking {
    /// What is missing.
    pub permissions: Vec<PermissionType>,
    /// The operator has yet to answer for one of them at least.
    pub waiting: bool,
    /// One of them at least was denied: asking again changes nothing.
    pub denied: bool,
}

fn names(permissions: &[PermissionType]) -> String {
    let all: Vec<&str> = permissions.iter().map(PermissionType::as_str).collect();
    all.join(", ")
}

/// Why a decision was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotDecided {
    /// There is no such question, or not about this.
    #[error("no question {request} about {permission} is open; `mgp pending` shows the open ones")]
    NotAsked {
        /// As it was named.
        request: String,
        /// As it was named.
        permission: PermissionType,
    },
    /// The approval would end before it begins.
    #[error("the end of the approval has passed already")]
    Past,
}

/// The permissions of one server. One owner; a new one for each life of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PermissionGate {
    rules: PermissionRules,
    recorded: BTreeMap<PermissionType, Recorded>,
    needs: BTreeMap<PermissionType, PermissionState>,
    generation: u64,
}

impl PermissionGate {
    /// Opens with what was decided before.
    #[must_use]
    pub fn new(rules: PermissionRules, recorded: BTreeMap<PermissionType, Recorded>) -> Self {
        Self {
            rules,
            recorded,
            needs: BTreeMap::new(),
            generation: 0,
        }
    }

    /// The server said that it, or one of its tools, needs these, in its own spelling. What is new or
    /// has lapsed is decided by the policy; what a person must decide is asked for under `request`.
    pub fn need(&mut self, words: &[String], request: &str, now_ms: u64) -> Vec<PermissionEffect> {
        let mut effects = self.tick(now_ms);
        let mut ask = Vec::new();
        for permission in words.iter().flat_map(|word| PermissionType::read(word)) {
            let settled = self.needs.get(&permission);
            if settled.is_some_and(|state| *state != PermissionState::Lapsed) {
                continue;
            }
            if settled.is_none() && self.needs.len() >= NEEDS_MAX {
                continue;
            }
            let state = self.first(&permission, request, now_ms);
            match &state {
                PermissionState::Pending { .. } => ask.push(permission.to_string()),
                PermissionState::Approved { by, until_ms } => {
                    effects.push(PermissionEffect::Granted {
                        permission: permission.clone(),
                        by: by.clone(),
                        until_ms: *until_ms,
                    })
                }
                PermissionState::Denied { by } => effects.push(PermissionEffect::Denied {
                    permission: permission.clone(),
                    by: by.clone(),
                }),
                PermissionState::Deferred { .. } | PermissionState::Lapsed => {}
            }
            self.set(permission, state);
        }
        if !ask.is_empty() {
            effects.push(PermissionEffect::Ask(Ask {
                request_id: request.to_owned(),
                permissions: ask,
                policy: Some(self.rules.policy),
                message: Some("Waiting for operator approval".to_owned()),
            }));
        }
        effects
    }

    /// What the records, the configuration and the policy say, in this order.
    fn first(&self, permission: &PermissionType, request: &str, now_ms: u64) -> PermissionState {
        let recorded = self.recorded.get(permission);
        if let Some(known) = recorded.filter(|r| r.until_ms.is_none_or(|end| now_ms < end)) {
            let by = known.by.clone();
            return match known.permission {
                Permission::Allow => PermissionState::Approved {
                    by,
                    until_ms: known.until_ms,
                },
                Permission::Deny => PermissionState::Denied { by },
            };
        }
        let approved = |by: &str| PermissionState::Approved {
            by: by.to_owned(),
            until_ms: None,
        };
        if self.rules.configured.contains(permission) {
            return approved(CONFIGURATION);
        }
        let pending = PermissionState::Pending {
            request: request.to_owned(),
        };
        match self.rules.policy {
            Policy::Interactive => pending,
            Policy::AutoApprove if self.rules.exceptions.contains(permission) => pending,
            Policy::AutoApprove => approved(POLICY),
            Policy::DenyAll | Policy::ConfigOnly => PermissionState::Denied {
                by: POLICY.to_owned(),
            },
        }
    }

    fn set(&mut self, permission: PermissionType, state: PermissionState) {
        self.generation += 1;
        self.needs.insert(permission, state);
    }

    /// The operator answered a question; permissions without an answer stay as they are. All of the
    /// answer is taken or nothing.
    ///
    /// # Errors
    /// [`NotDecided`] when it is not about what is open.
    pub fn decide(
        &mut self,
        request: &str,
        verdicts: &BTreeMap<PermissionType, Verdict>,
        by: &str,
        until_ms: Option<u64>,
        now_ms: u64,
    ) -> Result<Vec<PermissionEffect>, NotDecided> {
        if until_ms.is_some_and(|end| end <= now_ms) {
            return Err(NotDecided::Past);
        }
        let asked = |permission: &PermissionType| match self.needs.get(permission) {
            Some(
                PermissionState::Pending { request: open }
                | PermissionState::Deferred { request: open },
            ) => open == request,
            Some(
                PermissionState::Approved { .. }
                | PermissionState::Denied { .. }
                | PermissionState::Lapsed,
            )
            | None => false,
        };
        if let Some(permission) = verdicts.keys().find(|permission| !asked(permission)) {
            return Err(NotDecided::NotAsked {
                request: request.to_owned(),
                permission: permission.clone(),
            });
        }
        let mut effects = Vec::new();
        for (permission, verdict) in verdicts {
            let (permission, by) = (permission.clone(), by.to_owned());
            let state = match verdict {
                Verdict::Approved => PermissionState::Approved {
                    by: by.clone(),
                    until_ms,
                },
                Verdict::Denied => PermissionState::Denied { by: by.clone() },
                Verdict::Deferred => PermissionState::Deferred {
                    request: request.to_owned(),
                },
            };
            self.set(permission.clone(), state);
            match verdict {
                Verdict::Approved => effects.push(PermissionEffect::Granted {
                    permission,
                    by,
                    until_ms,
                }),
                Verdict::Denied => effects.push(PermissionEffect::Denied { permission, by }),
                Verdict::Deferred => {}
            }
        }
        if !self.questions().contains(request) {
            effects.push(PermissionEffect::Withdraw(request.to_owned()));
        }
        Ok(effects)
    }

    /// The operator took a permission back: in the log that is a denial ([`record`]), so that no
    /// policy gives it again to the server's next life. Nothing follows when the server did not have it.
    pub fn revoke(&mut self, permission: &PermissionType, by: &str) -> Vec<PermissionEffect> {
        self.recorded.remove(permission);
        match self.needs.get(permission) {
            Some(PermissionState::Approved { .. }) => {}
            Some(
                PermissionState::Pending { .. }
                | PermissionState::Deferred { .. }
                | PermissionState::Denied { .. }
                | PermissionState::Lapsed,
            )
            | None => return Vec::new(),
        }
        // Not lapsed: what was taken back by a person is not given again by a policy.
        let state = PermissionState::Denied { by: by.to_owned() };
        self.set(permission.clone(), state);
        vec![PermissionEffect::Revoked {
            permission: permission.clone(),
            by: Some(by.to_owned()),
        }]
    }

    /// Time has passed: what ended is told of.
    pub fn tick(&mut self, now_ms: u64) -> Vec<PermissionEffect> {
        let over = |state: &PermissionState| matches!(state, PermissionState::Approved { until_ms: Some(end), .. } if *end <= now_ms);
        let ended = self.needs.iter().filter(|(_, state)| over(state));
        let ended: Vec<PermissionType> = ended.map(|(permission, _)| permission.clone()).collect();
        for permission in &ended {
            self.recorded.remove(permission);
            self.set(permission.clone(), PermissionState::Lapsed);
        }
        let revoked = |permission| PermissionEffect::Revoked {
            permission,
            by: None,
        };
        ended.into_iter().map(revoked).collect()
    }

    /// When to call [`PermissionGate::tick`] next, in milliseconds since 1970.
    #[must_use]
    pub fn next_end_ms(&self) -> Option<u64> {
        let ends = self.needs.values().filter_map(|state| match state {
            PermissionState::Approved { until_ms, .. } => *until_ms,
            PermissionState::Pending { .. }
            | PermissionState::Deferred { .. }
            | PermissionState::Denied { .. }
            | PermissionState::Lapsed => None,
        });
        ends.min()
    }

    /// The server is gone; its open questions go with it.
    #[must_use]
    pub fn close(self) -> Vec<PermissionEffect> {
        self.questions()
            .into_iter()
            .map(PermissionEffect::Withdraw)
            .collect()
    }

    fn questions(&self) -> BTreeSet<String> {
        let open = self.needs.values().filter_map(|state| match state {
            PermissionState::Pending { request } | PermissionState::Deferred { request } => {
                Some(request.clone())
            }
            PermissionState::Approved { .. }
            | PermissionState::Denied { .. }
            | PermissionState::Lapsed => None,
        });
        open.collect()
    }

    /// Whether the server may run.
    #[must_use]
    pub fn standing(&self) -> PermissionStanding {
        let of = |wanted: fn(&PermissionState) -> bool| -> Vec<PermissionType> {
            let found = self.needs.iter().filter(|(_, state)| wanted(state));
            found.map(|(permission, _)| permission.clone()).collect()
        };
        let denied = of(|state| matches!(state, PermissionState::Denied { .. }));
        if self.rules.all_or_nothing && !denied.is_empty() {
            return PermissionStanding::Rejected(denied);
        }
        let pending = of(|state| matches!(state, PermissionState::Pending { .. }));
        if pending.is_empty() {
            PermissionStanding::Open
        } else {
            PermissionStanding::Waiting(pending)
        }
    }

    /// Whether a call that needs these may be made now: read again before it leaves when
    /// [`PermissionGate::generation`] is another one by then, or [`PermissionGate::next_end_ms`] has passed.
    ///
    /// # Errors
    /// [`Lacking`]: 1000 PERMISSION_DENIED (§14).
    pub fn may(&self, words: &[String], now_ms: u64) -> Result<(), Lacking> {
        let (mut waiting, mut denied) = (false, false);
        let mut lacks = |permission: &PermissionType| match self.needs.get(permission) {
            Some(PermissionState::Approved { until_ms, .. }) => {
                until_ms.is_some_and(|end| end <= now_ms)
            }
            Some(PermissionState::Pending { .. } | PermissionState::Deferred { .. }) => {
                waiting = true;
                true
            }
            Some(PermissionState::Denied { .. }) => {
                denied = true;
                true
            }
            Some(PermissionState::Lapsed) | None => true,
        };
        let needed = words.iter().flat_map(|word| PermissionType::read(word));
        let permissions: Vec<_> = needed.filter(|permission| lacks(permission)).collect();
        if permissions.is_empty() {
            return Ok(());
        }
        Err(Lacking {
            permissions,
            waiting,
            denied,
        })
    }

    /// What the server has, of what was decided before and of what it is known to need: that is how
    /// its process is started.
    #[must_use]
    pub fn has(&self, words: &[String], now_ms: u64) -> BTreeSet<PermissionType> {
        let needed = words.iter().flat_map(|word| PermissionType::read(word));
        let known = self.recorded.keys().chain(&self.rules.configured);
        let all: BTreeSet<_> = known
            .chain(self.needs.keys())
            .cloned()
            .chain(needed)
            .collect();
        let has = |permission: &PermissionType| {
            let state = self.needs.get(permission).cloned();
            let state = state.unwrap_or_else(|| self.first(permission, "", now_ms));
            matches!(state, PermissionState::Approved { until_ms, .. } if until_ms.is_none_or(|end| now_ms < end))
        };
        all.into_iter().filter(has).collect()
    }

    /// What of a question is still open, by full name.
    #[must_use]
    pub fn open(&self, request: &str) -> Vec<PermissionType> {
        let open = self.needs.iter().filter(|(_, state)| match state {
            PermissionState::Pending { request: of }
            | PermissionState::Deferred { request: of } => of == request,
            PermissionState::Approved { .. }
            | PermissionState::Denied { .. }
            | PermissionState::Lapsed => false,
        });
        open.map(|(permission, _)| permission.clone()).collect()
    }

    /// True while the operator has said nothing of one of these, not even that it is put off.
    #[must_use]
    pub fn undecided(&self, words: &[String]) -> bool {
        let pending = |permission: &PermissionType| {
            matches!(
                self.needs.get(permission),
                Some(PermissionState::Pending { .. })
            )
        };
        let mut all = words.iter().flat_map(|word| PermissionType::read(word));
        all.any(|permission| pending(&permission))
    }

    /// Another number whenever anything changed.
    #[cfg(test)]
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// What the server is told of a question, in its own spelling: a short form is approved when all
    /// it stands for is.
    #[must_use]
    pub fn decision(&self, request: &str, words: &[String]) -> Decision {
        let mut end: Option<u64> = None;
        let mut by = None;
        let mut verdict = |permission: &PermissionType| match self.needs.get(permission) {
            Some(PermissionState::Approved { by: who, until_ms }) => {
                by = Some(who.clone());
                end = end.into_iter().chain(*until_ms).min();
                Verdict::Approved
            }
            Some(PermissionState::Pending { .. } | PermissionState::Deferred { .. }) => {
                Verdict::Deferred
            }
            Some(PermissionState::Denied { by: who }) => {
                by.get_or_insert_with(|| who.clone());
                Verdict::Denied
            }
            Some(PermissionState::Lapsed) | None => Verdict::Denied,
        };
        let grants = words.iter().map(|word| {
            let each = PermissionType::read(word);
            // The worst of them stands last in the order.
            let worst = each.iter().map(&mut verdict).max();
            (word.clone(), Given::Plain(worst.unwrap_or(Verdict::Denied)))
        });
        Decision {
            request_id: request.to_owned(),
            grants: grants.collect(),
            approved_by: by,
            expires_at: end.map(rfc3339_ms),
        }
    }
}
