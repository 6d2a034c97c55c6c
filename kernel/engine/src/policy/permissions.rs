//! The permissions of a server (MGP §3): its gate, from its first declaration on.
//!
//! A server lacks any permission that was not decided. The operator's decisions are grants in the log with the server
//! as subject; the gate starts with those in force.

mod records;
mod rules;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use mgp_protocol::mgp::access::Permission;
use mgp_protocol::mgp::permission::{
    Ask, Decision, PermissionDecision, PermissionType, Policy, Verdict,
};

pub(crate) use self::records::to_grant_change;
pub use self::records::{RecordedDecision, decisions_in_force};
pub use self::rules::PermissionRules;
use crate::timestamps::render_rfc3339_ms;

/// Most permissions of a server. Further ones are not requested, and stay denied.
pub(crate) const NEEDS_MAX: usize = 256;
/// Named as the decider where no person decided.
const CONFIGURATION: &str = "configuration";
const POLICY: &str = "policy";

/// The state of one permission.
#[derive(Clone, Debug, PartialEq, Eq)]
enum PermissionState {
    /// Requested; the server does not start before an answer.
    Pending {
        request: String,
    },
    /// Deferred; the server runs without it meanwhile.
    Deferred {
        request: String,
    },
    Approved {
        decided_by: String,
        expires_ms: Option<u64>,
    },
    Denied {
        decided_by: String,
    },
    /// Expired or revoked; requested again when it is needed again.
    Expired,
}

/// An effect: to be notified, queued and audited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PermissionEffect {
    /// An entry for the operator's queue, and for a server that negotiated it.
    Request(Ask),
    /// The entry is withdrawn.
    Withdraw(String),
    /// PERMISSION_GRANTED.
    Granted {
        /// The permission.
        permission: PermissionType,
        /// By whom.
        decided_by: String,
        /// Until when, in milliseconds since 1970.
        expires_ms: Option<u64>,
    },
    /// PERMISSION_DENIED.
    Denied {
        /// The permission.
        permission: PermissionType,
        /// By whom.
        decided_by: String,
    },
    /// PERMISSION_REVOKED: revoked by somebody, or expired (`by` is `None`). Waiting calls are decided
    /// again.
    Revoked {
        /// The permission.
        permission: PermissionType,
        /// By whom.
        decided_by: Option<String>,
    },
}

/// The state of the server as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PermissionStatus {
    /// It stays `connecting` until the operator has answered.
    Pending(Vec<PermissionType>),
    /// It may run, with the permissions it has.
    Ready,
    /// It was denied a permission that it needs, and is not run.
    Rejected(Vec<PermissionType>),
}

/// A call requires permissions that its server lacks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server lacks {} ({})", join_names(.permissions), if *.is_pending { "it waits for the operator: `mgp pending`" } else { "denied, ended or never asked for" })]
pub struct MissingPermissions {
    /// What is missing.
    pub permissions: Vec<PermissionType>,
    /// At least one of them still waits for the operator.
    pub is_pending: bool,
    /// At least one was denied: a retry changes nothing.
    pub is_denied: bool,
}

fn join_names(permissions: &[PermissionType]) -> String {
    let all: Vec<&str> = permissions.iter().map(PermissionType::as_str).collect();
    all.join(", ")
}

/// Why a decision was rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecisionError {
    /// There is no such entry, or it does not contain the permission.
    #[error("no question {request} about {permission} is open; `mgp pending` shows the open ones")]
    UnknownRequest {
        /// As it was named.
        request: String,
        /// As it was named.
        permission: PermissionType,
    },
    /// The approval would expire before it begins.
    #[error("the end of the approval has passed already")]
    AlreadyExpired,
}

/// The permissions of one server. It has one owner, and is new for each generation of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PermissionGate {
    rules: PermissionRules,
    decisions: BTreeMap<PermissionType, RecordedDecision>,
    needs: BTreeMap<PermissionType, PermissionState>,
    generation: u64,
}

impl PermissionGate {
    /// Creates the gate with earlier decisions.
    #[must_use]
    pub fn new(
        rules: PermissionRules,
        decisions: BTreeMap<PermissionType, RecordedDecision>,
    ) -> Self {
        Self {
            rules,
            decisions,
            needs: BTreeMap::new(),
            generation: 0,
        }
    }

    /// The server declared that it, or one of its tools, requires these, in its own spelling. New and expired ones
    /// are decided by the policy; what a person must decide is requested under `request`.
    pub fn require(
        &mut self,
        words: &[String],
        request: &str,
        now_ms: u64,
    ) -> Vec<PermissionEffect> {
        let mut effects = self.expire(now_ms);
        let mut ask = Vec::new();
        for permission in words
            .iter()
            .flat_map(|word| PermissionType::parse_all(word))
        {
            let settled = self.needs.get(&permission);
            if settled.is_some_and(|state| *state != PermissionState::Expired) {
                continue;
            }
            if settled.is_none() && self.needs.len() >= NEEDS_MAX {
                continue;
            }
            let state = self.initial_state(&permission, request, now_ms);
            match &state {
                PermissionState::Pending { .. } => ask.push(permission.to_string()),
                PermissionState::Approved {
                    decided_by: by,
                    expires_ms: until_ms,
                } => effects.push(PermissionEffect::Granted {
                    permission: permission.clone(),
                    decided_by: by.clone(),
                    expires_ms: *until_ms,
                }),
                PermissionState::Denied { decided_by: by } => {
                    effects.push(PermissionEffect::Denied {
                        permission: permission.clone(),
                        decided_by: by.clone(),
                    })
                }
                PermissionState::Deferred { .. } | PermissionState::Expired => {}
            }
            self.set_state(permission, state);
        }
        if !ask.is_empty() {
            effects.push(PermissionEffect::Request(Ask {
                request_id: request.to_owned(),
                permissions: ask,
                policy: Some(self.rules.policy),
                message: Some("Waiting for operator approval".to_owned()),
            }));
        }
        effects
    }

    /// The permissions of the server that are decided or required.
    pub fn known_permissions(&self) -> impl Iterator<Item = &PermissionType> {
        let decided = self.decisions.keys().chain(&self.rules.configured);
        decided.chain(self.needs.keys())
    }

    /// Decided by the records, the configuration and the policy, in this order.
    fn initial_state(
        &self,
        permission: &PermissionType,
        request: &str,
        now_ms: u64,
    ) -> PermissionState {
        let recorded = self.decisions.get(permission);
        if let Some(known) = recorded.filter(|r| r.expires_ms.is_none_or(|end| now_ms < end)) {
            let by = known.decided_by.clone();
            return match known.permission {
                Permission::Allow => PermissionState::Approved {
                    decided_by: by,
                    expires_ms: known.expires_ms,
                },
                Permission::Deny => PermissionState::Denied { decided_by: by },
            };
        }
        let approved = |by: &str| PermissionState::Approved {
            decided_by: by.to_owned(),
            expires_ms: None,
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
                decided_by: POLICY.to_owned(),
            },
        }
    }

    fn set_state(&mut self, permission: PermissionType, state: PermissionState) {
        self.generation += 1;
        self.needs.insert(permission, state);
    }

    /// The operator answered an entry; permissions without an answer are unchanged. An answer is applied completely
    /// or not at all.
    ///
    /// # Errors
    /// [`DecisionError`] when it is not about open permissions.
    pub fn decide(
        &mut self,
        request: &str,
        verdicts: &BTreeMap<PermissionType, Verdict>,
        by: &str,
        until_ms: Option<u64>,
        now_ms: u64,
    ) -> Result<Vec<PermissionEffect>, DecisionError> {
        if until_ms.is_some_and(|end| end <= now_ms) {
            return Err(DecisionError::AlreadyExpired);
        }
        let asked = |permission: &PermissionType| match self.needs.get(permission) {
            Some(
                PermissionState::Pending { request: open }
                | PermissionState::Deferred { request: open },
            ) => open == request,
            Some(
                PermissionState::Approved { .. }
                | PermissionState::Denied { .. }
                | PermissionState::Expired,
            )
            | None => false,
        };
        if let Some(permission) = verdicts.keys().find(|permission| !asked(permission)) {
            return Err(DecisionError::UnknownRequest {
                request: request.to_owned(),
                permission: permission.clone(),
            });
        }
        let mut effects = Vec::new();
        for (permission, verdict) in verdicts {
            let (permission, by) = (permission.clone(), by.to_owned());
            let state = match verdict {
                Verdict::Approved => PermissionState::Approved {
                    decided_by: by.clone(),
                    expires_ms: until_ms,
                },
                Verdict::Denied => PermissionState::Denied {
                    decided_by: by.clone(),
                },
                Verdict::Deferred => PermissionState::Deferred {
                    request: request.to_owned(),
                },
            };
            self.set_state(permission.clone(), state);
            match verdict {
                Verdict::Approved => effects.push(PermissionEffect::Granted {
                    permission,
                    decided_by: by,
                    expires_ms: until_ms,
                }),
                Verdict::Denied => effects.push(PermissionEffect::Denied {
                    permission,
                    decided_by: by,
                }),
                Verdict::Deferred => {}
            }
        }
        if !self.open_requests().contains(request) {
            effects.push(PermissionEffect::Withdraw(request.to_owned()));
        }
        Ok(effects)
    }

    /// The operator revoked a permission. In the log that is a denial ([`to_grant_change`]), so that no policy
    /// approves it in the server's next generation. No effect if the server did not have it.
    pub fn revoke(&mut self, permission: &PermissionType, by: &str) -> Vec<PermissionEffect> {
        self.decisions.remove(permission);
        match self.needs.get(permission) {
            Some(PermissionState::Approved { .. }) => {}
            Some(
                PermissionState::Pending { .. }
                | PermissionState::Deferred { .. }
                | PermissionState::Denied { .. }
                | PermissionState::Expired,
            )
            | None => return Vec::new(),
        }
        // Not expired: a policy must not approve again what a person revoked.
        let state = PermissionState::Denied {
            decided_by: by.to_owned(),
        };
        self.set_state(permission.clone(), state);
        vec![PermissionEffect::Revoked {
            permission: permission.clone(),
            decided_by: Some(by.to_owned()),
        }]
    }

    /// Time has passed: reports expired permissions.
    pub fn expire(&mut self, now_ms: u64) -> Vec<PermissionEffect> {
        let over = |state: &PermissionState| matches!(state, PermissionState::Approved { expires_ms: Some(end), .. } if *end <= now_ms);
        let ended = self.needs.iter().filter(|(_, state)| over(state));
        let ended: Vec<PermissionType> = ended.map(|(permission, _)| permission.clone()).collect();
        for permission in &ended {
            self.decisions.remove(permission);
            self.set_state(permission.clone(), PermissionState::Expired);
        }
        let revoked = |permission| PermissionEffect::Revoked {
            permission,
            decided_by: None,
        };
        ended.into_iter().map(revoked).collect()
    }

    /// When to call [`PermissionGate::expire`] next, in milliseconds since 1970.
    #[must_use]
    pub fn next_expiry_ms(&self) -> Option<u64> {
        let ends = self.needs.values().filter_map(|state| match state {
            PermissionState::Approved {
                expires_ms: until_ms,
                ..
            } => *until_ms,
            PermissionState::Pending { .. }
            | PermissionState::Deferred { .. }
            | PermissionState::Denied { .. }
            | PermissionState::Expired => None,
        });
        ends.min()
    }

    fn open_requests(&self) -> BTreeSet<String> {
        let open = self.needs.values().filter_map(|state| match state {
            PermissionState::Pending { request } | PermissionState::Deferred { request } => {
                Some(request.clone())
            }
            PermissionState::Approved { .. }
            | PermissionState::Denied { .. }
            | PermissionState::Expired => None,
        });
        open.collect()
    }

    /// Whether the server may run.
    #[must_use]
    pub fn status(&self) -> PermissionStatus {
        let of = |wanted: fn(&PermissionState) -> bool| -> Vec<PermissionType> {
            let found = self.needs.iter().filter(|(_, state)| wanted(state));
            found.map(|(permission, _)| permission.clone()).collect()
        };
        let denied = of(|state| matches!(state, PermissionState::Denied { .. }));
        if self.rules.all_or_nothing && !denied.is_empty() {
            return PermissionStatus::Rejected(denied);
        }
        let pending = of(|state| matches!(state, PermissionState::Pending { .. }));
        if pending.is_empty() {
            PermissionStatus::Ready
        } else {
            PermissionStatus::Pending(pending)
        }
    }

    /// Checks whether a call that requires these may be made. Checked again before it is sent if
    /// [`PermissionGate::generation`] has changed or [`PermissionGate::next_expiry_ms`] has passed.
    ///
    /// # Errors
    /// [`MissingPermissions`]: 1000 PERMISSION_DENIED (§14).
    pub fn check(&self, words: &[String], now_ms: u64) -> Result<(), MissingPermissions> {
        let (mut waiting, mut denied) = (false, false);
        let mut lacks = |permission: &PermissionType| match self.needs.get(permission) {
            Some(PermissionState::Approved {
                expires_ms: until_ms,
                ..
            }) => until_ms.is_some_and(|end| end <= now_ms),
            Some(PermissionState::Pending { .. } | PermissionState::Deferred { .. }) => {
                waiting = true;
                true
            }
            Some(PermissionState::Denied { .. }) => {
                denied = true;
                true
            }
            Some(PermissionState::Expired) | None => true,
        };
        let needed = words
            .iter()
            .flat_map(|word| PermissionType::parse_all(word));
        let permissions: Vec<_> = needed.filter(|permission| lacks(permission)).collect();
        if permissions.is_empty() {
            return Ok(());
        }
        Err(MissingPermissions {
            permissions,
            is_pending: waiting,
            is_denied: denied,
        })
    }

    /// The permissions it requires, each with its decision, for display.
    #[must_use]
    pub fn describe(&self, now_ms: u64) -> Vec<String> {
        let needs = self.needs.iter();
        let described = needs.map(|(permission, state)| {
            let how = match state {
                PermissionState::Pending { .. } | PermissionState::Deferred { .. } => {
                    "waits for you: see `mgp pending`".to_owned()
                }
                PermissionState::Approved {
                    expires_ms: until_ms,
                    ..
                } if until_ms.is_some_and(|end| end <= now_ms) => {
                    "was approved for a time that is over".into()
                }
                PermissionState::Approved {
                    decided_by: by,
                    expires_ms: until_ms,
                } => {
                    let until = until_ms.map(|end| format!(" until {}", render_rfc3339_ms(end)));
                    format!("approved by {by}{}", until.unwrap_or_default())
                }
                PermissionState::Denied { decided_by: by } => format!("denied by {by}"),
                PermissionState::Expired => "not approved any more".into(),
            };
            format!("{}: {how}", permission.as_str())
        });
        described.collect()
    }

    /// The permissions the server has, from earlier decisions and those it is known to require; its process is
    /// started with these.
    #[must_use]
    pub fn granted_permissions(&self, words: &[String], now_ms: u64) -> BTreeSet<PermissionType> {
        let needed = words
            .iter()
            .flat_map(|word| PermissionType::parse_all(word));
        let known = self.decisions.keys().chain(&self.rules.configured);
        let all: BTreeSet<_> = known
            .chain(self.needs.keys())
            .cloned()
            .chain(needed)
            .collect();
        let has = |permission: &PermissionType| {
            let state = self.needs.get(permission).cloned();
            let state = state.unwrap_or_else(|| self.initial_state(permission, "", now_ms));
            matches!(state, PermissionState::Approved { expires_ms, .. } if expires_ms.is_none_or(|end| now_ms < end))
        };
        all.into_iter().filter(has).collect()
    }

    /// The open permissions of an entry, by full name.
    #[must_use]
    pub fn open_permissions(&self, request: &str) -> Vec<PermissionType> {
        let open = self.needs.iter().filter(|(_, state)| match state {
            PermissionState::Pending { request: of }
            | PermissionState::Deferred { request: of } => of == request,
            PermissionState::Approved { .. }
            | PermissionState::Denied { .. }
            | PermissionState::Expired => false,
        });
        open.map(|(permission, _)| permission.clone()).collect()
    }

    /// True while the operator has not answered one of these; deferring counts as an answer.
    #[must_use]
    pub fn has_pending(&self, words: &[String]) -> bool {
        let pending = |permission: &PermissionType| {
            matches!(
                self.needs.get(permission),
                Some(PermissionState::Pending { .. })
            )
        };
        let mut all = words
            .iter()
            .flat_map(|word| PermissionType::parse_all(word));
        all.any(|permission| pending(&permission))
    }

    /// A number that changes with every change.
    #[cfg(test)]
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// The decision sent to the server, in its own spelling: a short form is approved when everything it stands for
    /// is.
    #[must_use]
    pub fn to_decision(&self, request: &str, words: &[String]) -> Decision {
        let mut end: Option<u64> = None;
        let mut by = None;
        let mut verdict = |permission: &PermissionType| match self.needs.get(permission) {
            Some(PermissionState::Approved {
                decided_by: who,
                expires_ms: until_ms,
            }) => {
                by = Some(who.clone());
                end = end.into_iter().chain(*until_ms).min();
                Verdict::Approved
            }
            Some(PermissionState::Pending { .. } | PermissionState::Deferred { .. }) => {
                Verdict::Deferred
            }
            Some(PermissionState::Denied { decided_by: who }) => {
                by.get_or_insert_with(|| who.clone());
                Verdict::Denied
            }
            Some(PermissionState::Expired) | None => Verdict::Denied,
        };
        let grants = words.iter().map(|word| {
            let each = PermissionType::parse_all(word);
            // The worst verdict is the last in this order.
            let worst = each.iter().map(&mut verdict).max();
            (
                word.clone(),
                PermissionDecision::Plain(worst.unwrap_or(Verdict::Denied)),
            )
        });
        Decision {
            request_id: request.to_owned(),
            grants: grants.collect(),
            approved_by: by,
            expires_at: end.map(render_rfc3339_ms),
        }
    }
}
