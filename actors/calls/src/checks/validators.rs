//! Validators of arguments (MGP §4.5, §7). Short arguments are judged at once; long ones on other threads,
//! so that the threads that carry calls are not held up.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use mgp_engine::policy::requirements::CodeRules;
use mgp_engine::tools::catalog::CatalogTool;
use mgp_protocol::refusal::{Denial, Refusal};
use mgp_screening::code_safety::{self, Rejection};
use mgp_screening::validators::{Blocked, No, is_light};
use serde_json::value::RawValue;
use tokio::sync::Semaphore;

use mgp_runtime::task::blocking;

/// Arguments longer than this are judged on another thread, unless nothing in them needs a closer look.
/// A judgement takes some 0.1 µs per byte.
const SHORT: usize = 8 << 10;
/// How many judgements may wait for a thread; each holds its arguments.
const WAITING: usize = 64;
/// Verdicts kept in each generation; a rejection takes some kilobytes.
const KEPT: usize = 512;

type Name = [u8; 32];
type Verdict = Result<(), Arc<Rejection>>;

/// Judges arguments, and caches its verdicts on code.
#[derive(Debug)]
pub struct Validation {
    verdicts: Arc<Mutex<Verdicts>>,
    /// Limits the judgements that run at once.
    judges: Semaphore,
    /// Limits those that run or wait to run.
    room: Semaphore,
}

impl Default for Validation {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            verdicts: Arc::default(),
            judges: Semaphore::new(cores),
            room: Semaphore::new(WAITING + cores),
        }
    }
}

/// Verdicts on code, in two generations: when the younger is full, the older is dropped.
#[derive(Debug, Default)]
struct Verdicts {
    young: HashMap<Name, Verdict>,
    old: HashMap<Name, Verdict>,
}

impl Verdicts {
    fn get(&mut self, name: &Name) -> Option<Verdict> {
        if let Some(known) = self.young.get(name) {
            return Some(known.clone());
        }
        let known = self.old.remove(name)?;
        self.keep(*name, known.clone());
        Some(known)
    }

    fn keep(&mut self, name: Name, verdict: Verdict) {
        if self.young.len() >= KEPT {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(name, verdict);
    }
}

/// What the cache knows about code.
enum Known {
    Rejected(Arc<Rejection>),
    /// Not in the cache.
    Unseen,
}

impl Validation {
    /// Judges the arguments of a call.
    ///
    /// # Errors
    /// [`Denial::Validator`], [`Denial::UnsafeCode`], and [`Refusal::Overloaded`] when too many wait
    /// to be judged.
    pub async fn judge(&self, tool: &Arc<CatalogTool>, arguments: &str) -> Result<(), Refusal> {
        let requirements = &tool.requirements;
        if requirements.validators.chosen().is_empty() {
            return Ok(());
        }
        if arguments.len() <= SHORT || is_light(arguments) {
            let known = |code: &str| self.known(requirements.code.as_deref(), code);
            match requirements.judge(&tool.own_name, arguments, known) {
                Ok(()) => return Ok(()),
                Err(No::Unsafe {
                    rejection: Known::Unseen,
                    ..
                }) => {}
                Err(No::Unsafe {
                    path,
                    rejection: Known::Rejected(rejection),
                }) => return Err(unsafe_code(path, &rejection)),
                Err(No::Blocked(no)) => return Err(blocked(no)),
            }
        }
        self.elsewhere(tool, arguments).await
    }

    fn known(&self, rules: Option<&CodeRules>, code: &str) -> Result<(), Known> {
        let Some(rules) = rules else { return Ok(()) };
        match lock(&self.verdicts).get(&rules.name(code)) {
            Some(Ok(())) => Ok(()),
            Some(Err(rejection)) => Err(Known::Rejected(rejection)),
            None => Err(Known::Unseen),
        }
    }

    async fn elsewhere(&self, tool: &Arc<CatalogTool>, arguments: &str) -> Result<(), Refusal> {
        let full = |_| Refusal::Overloaded {
            what: "the queue of arguments that are to be judged".into(),
        };
        let _place = self.room.try_acquire().map_err(full)?;
        let _judge = self.judges.acquire().await.expect("it is never closed");
        let (tool, arguments) = (tool.clone(), arguments.to_owned());
        let verdicts = self.verdicts.clone();
        let judging = blocking("validators.judge", move || {
            let rules = tool.requirements.code.as_deref();
            let judge = |code: &str| judge_code(&verdicts, rules, code);
            tool.requirements.judge(&tool.own_name, &arguments, judge)
        });
        match judging.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(No::Unsafe { path, rejection })) => Err(unsafe_code(path, &rejection)),
            Ok(Err(No::Blocked(no))) => Err(blocked(no)),
            // The kernel is ending or the judge panicked: arguments that nobody judged are not sent.
            Err(error) => Err(Refusal::Broken(format!(
                "the arguments could not be judged: {error}"
            ))),
        }
    }
}

fn judge_code(verdicts: &Mutex<Verdicts>, rules: Option<&CodeRules>, code: &str) -> Verdict {
    let Some(rules) = rules else { return Ok(()) };
    let name = rules.name(code);
    let known = lock(verdicts).get(&name);
    known.unwrap_or_else(|| {
        let verdict = code_safety::judge(&rules.policy, code).map_err(|no| Arc::new(*no));
        lock(verdicts).keep(name, verdict.clone());
        verdict
    })
}

fn lock(verdicts: &Mutex<Verdicts>) -> std::sync::MutexGuard<'_, Verdicts> {
    verdicts.lock().unwrap_or_else(PoisonError::into_inner)
}

fn blocked(no: Blocked) -> Refusal {
    Refusal::Denied(Box::new(Denial::Validator {
        validator: no.validator.name().to_owned(),
        path: no.path,
        rule: no.rule.to_owned(),
        reason: no.reason,
        hint: Some(no.hint.to_owned()),
    }))
}

fn unsafe_code(path: String, rejection: &Rejection) -> Refusal {
    let body = rejection.body().to_string();
    Refusal::Denied(Box::new(Denial::UnsafeCode {
        violations: rejection.violations(),
        path,
        body: RawValue::from_string(body).expect("a value is always JSON"),
    }))
}
