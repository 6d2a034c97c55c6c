//! Validators of arguments (MGP §4.5, §7). Short arguments are validated inline; long ones on other threads, so that
//! they do not block the threads that carry calls.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use mgp_engine::policy::requirements::CodeRules;
use mgp_engine::tools::catalog::CatalogTool;
use mgp_protocol::refusal::{Denial, Refusal};
use mgp_screening::code_safety::Rejection;
use mgp_screening::{BlockedArgument, ScreeningRejection, code_safety, is_trivially_safe};
use serde_json::value::RawValue;
use tokio::sync::Semaphore;

use mgp_runtime::task::run_blocking;

/// Arguments longer than this are validated on another thread, unless nothing in them needs a closer look. Validation
/// takes some 0.1 µs per byte.
const INLINE_BYTES_MAX: usize = 8 << 10;
/// How many judgements may wait for a thread; each holds its arguments.
const QUEUED_CHECKS_MAX: usize = 64;
/// Verdicts cached in each generation; a rejection takes some kilobytes.
const VERDICTS_PER_GENERATION: usize = 512;

type CodeHash = [u8; 32];
type Verdict = Result<(), Arc<Rejection>>;

/// Judges arguments, and caches its verdicts on code.
#[derive(Debug)]
pub struct Validation {
    verdicts: Arc<Mutex<Verdicts>>,
    /// Limits the judgements that run at once.
    running: Semaphore,
    /// Limits those that run or wait to run.
    queued: Semaphore,
}

impl Default for Validation {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            verdicts: Arc::default(),
            running: Semaphore::new(cores),
            queued: Semaphore::new(QUEUED_CHECKS_MAX + cores),
        }
    }
}

/// Verdicts on code, in two generations: when the younger is full, the older is dropped.
#[derive(Debug, Default)]
struct Verdicts {
    young: HashMap<CodeHash, Verdict>,
    old: HashMap<CodeHash, Verdict>,
}

impl Verdicts {
    fn get(&mut self, name: &CodeHash) -> Option<Verdict> {
        if let Some(known) = self.young.get(name) {
            return Some(known.clone());
        }
        let known = self.old.remove(name)?;
        self.insert(*name, known.clone());
        Some(known)
    }

    fn insert(&mut self, name: CodeHash, verdict: Verdict) {
        if self.young.len() >= VERDICTS_PER_GENERATION {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(name, verdict);
    }
}

/// The cached verdict on code.
enum CacheLookup {
    Rejected(Arc<Rejection>),
    /// Not in the cache.
    Missing,
}

impl Validation {
    /// Judges the arguments of a call.
    ///
    /// # Errors
    /// [`Denial::Validator`], [`Denial::UnsafeCode`], and [`Refusal::Overloaded`] when too many wait
    /// to be judged.
    pub async fn check(&self, tool: &Arc<CatalogTool>, arguments: &str) -> Result<(), Refusal> {
        let requirements = &tool.requirements;
        if requirements.validators.active().is_empty() {
            return Ok(());
        }
        if arguments.len() <= INLINE_BYTES_MAX || is_trivially_safe(arguments) {
            let known = |code: &str| self.look_up(requirements.code.as_deref(), code);
            match requirements.validate(&tool.own_name, arguments, known) {
                Ok(()) => return Ok(()),
                Err(ScreeningRejection::UnsafeCode {
                    rejection: CacheLookup::Missing,
                    ..
                }) => {}
                Err(ScreeningRejection::UnsafeCode {
                    path,
                    rejection: CacheLookup::Rejected(rejection),
                }) => return Err(unsafe_code_refusal(path, &rejection)),
                Err(ScreeningRejection::Blocked(no)) => return Err(blocked_refusal(no)),
            }
        }
        self.check_on_thread(tool, arguments).await
    }

    fn look_up(&self, rules: Option<&CodeRules>, code: &str) -> Result<(), CacheLookup> {
        let Some(rules) = rules else { return Ok(()) };
        match lock(&self.verdicts).get(&rules.digest(code)) {
            Some(Ok(())) => Ok(()),
            Some(Err(rejection)) => Err(CacheLookup::Rejected(rejection)),
            None => Err(CacheLookup::Missing),
        }
    }

    async fn check_on_thread(
        &self,
        tool: &Arc<CatalogTool>,
        arguments: &str,
    ) -> Result<(), Refusal> {
        let full = |_| Refusal::Overloaded {
            what: "the queue of arguments that are to be judged".into(),
        };
        let _place = self.queued.try_acquire().map_err(full)?;
        let _judge = self.running.acquire().await.expect("it is never closed");
        let (tool, arguments) = (tool.clone(), arguments.to_owned());
        let verdicts = self.verdicts.clone();
        let judging = run_blocking("validators.judge", move || {
            let rules = tool.requirements.code.as_deref();
            let judge = |code: &str| check_code(&verdicts, rules, code);
            tool.requirements
                .validate(&tool.own_name, &arguments, judge)
        });
        match judging.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(ScreeningRejection::UnsafeCode { path, rejection })) => {
                Err(unsafe_code_refusal(path, &rejection))
            }
            Ok(Err(ScreeningRejection::Blocked(no))) => Err(blocked_refusal(no)),
            // The kernel is shutting down or the validator panicked: arguments without a verdict are not sent.
            Err(error) => Err(Refusal::Internal(format!(
                "the arguments could not be judged: {error}"
            ))),
        }
    }
}

fn check_code(verdicts: &Mutex<Verdicts>, rules: Option<&CodeRules>, code: &str) -> Verdict {
    let Some(rules) = rules else { return Ok(()) };
    let name = rules.digest(code);
    let known = lock(verdicts).get(&name);
    known.unwrap_or_else(|| {
        let verdict = code_safety::check(&rules.policy, code).map_err(|no| Arc::new(*no));
        lock(verdicts).insert(name, verdict.clone());
        verdict
    })
}

fn lock(verdicts: &Mutex<Verdicts>) -> std::sync::MutexGuard<'_, Verdicts> {
    verdicts.lock().unwrap_or_else(PoisonError::into_inner)
}

fn blocked_refusal(no: BlockedArgument) -> Refusal {
    Refusal::Denied(Box::new(Denial::Validator {
        validator: no.validator.name().to_owned(),
        path: no.path,
        rule: no.rule.to_owned(),
        reason: no.reason,
        hint: Some(no.hint.to_owned()),
    }))
}

fn unsafe_code_refusal(path: String, rejection: &Rejection) -> Refusal {
    let body = rejection.body().to_string();
    Refusal::Denied(Box::new(Denial::UnsafeCode {
        violations: rejection.violations(),
        path,
        body: RawValue::from_string(body).expect("a value is always JSON"),
    }))
}
