//! The tokens used by servers today, on disk before anything is sent.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mgp_mcpl_engine::inference::budget::{
    BudgetExceeded, BudgetRules, TokenBudget, TokenReservation,
};
use mgp_protocol::ids::ServerId;
use mgp_runtime::task;
use mgp_runtime::time::unix_ms;
use mgp_store::atomic_file;
use mgp_store::regular_file;
use tokio::sync::Mutex;

/// The file in the folder of MCPL.
const FILE: &str = "tokens.json";
/// Longest file that is read, in bytes: all counted servers, with long names.
const FILE_BYTES_MAX: u64 = 4 << 20;
const DAY_MS: u64 = 86_400_000;

/// The tokens used by servers today. Clones share the count.
#[derive(Clone, Debug)]
pub struct UsedTokens(Arc<SharedTokens>);

#[derive(Debug)]
struct SharedTokens {
    path: PathBuf,
    /// Held while the file is written, so that the latest count is written last.
    budget: Mutex<TokenBudget>,
}

/// Why tokens are not reserved.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReserveError {
    #[error(transparent)]
    None(#[from] BudgetExceeded),
    #[error("what it may take could not be written down")]
    Disk(#[source] io::Error),
}

/// Why the count cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}; remove it, and today's tokens are counted from 0", .path.display())]
pub struct TokenFileError {
    path: PathBuf,
    why: String,
}

impl UsedTokens {
    /// Reads the count in this folder; blocks.
    ///
    /// # Errors
    /// [`TokenFileError`], as a text for the person who starts the kernel.
    pub fn open(folder: &Path) -> Result<Self, TokenFileError> {
        let path = folder.join(FILE);
        let unreadable = |why: String| TokenFileError {
            path: path.clone(),
            why,
        };
        let size = std::fs::metadata(&path).map(|it| it.len());
        let budget = match size {
            Err(error) if error.kind() == io::ErrorKind::NotFound => TokenBudget::default(),
            Err(error) => return Err(unreadable(error.to_string())),
            Ok(size) if size > FILE_BYTES_MAX => {
                return Err(unreadable("it is too long".to_owned()));
            }
            Ok(_) => {
                let text = regular_file::read_to_string(&path);
                let text = text.map_err(|error| unreadable(error.to_string()))?;
                TokenBudget::parse(&text).map_err(|error| unreadable(error.to_string()))?
            }
        };
        Ok(Self(Arc::new(SharedTokens {
            path,
            budget: Mutex::new(budget),
        })))
    }

    /// Reserves tokens; resolves once that is on disk.
    pub(super) async fn reserve(
        &self,
        rules: &BudgetRules,
        server: &ServerId,
        tokens: u64,
    ) -> Result<TokenReservation, ReserveError> {
        let mut budget = self.0.budget.lock().await;
        let day = unix_ms() / DAY_MS;
        let reservation = budget.reserve(rules, server, tokens, day)?;
        match self.0.write(&budget).await {
            Ok(()) => Ok(reservation),
            Err(error) => {
                budget.settle(reservation, Some(0));
                Err(ReserveError::Disk(error))
            }
        }
    }

    /// Settles a reservation; nobody waits for the disk.
    pub(super) async fn settle(&self, reservation: TokenReservation, used: Option<u64>) {
        let mut budget = self.0.budget.lock().await;
        budget.settle(reservation, used);
        if let Err(error) = self.0.write(&budget).await {
            // The stored count is too high rather than too low.
            tracing::warn!(%error, "the tokens of servers are not on disk");
        }
    }
}

impl SharedTokens {
    async fn write(&self, budget: &TokenBudget) -> io::Result<()> {
        let (path, text) = (self.path.clone(), budget.to_json());
        let written = task::run_blocking("mcpl.tokens", move || {
            if let Some(folder) = path.parent() {
                atomic_file::create_folder(folder)?;
            }
            atomic_file::write(&path, text.as_bytes())
        });
        written.await.map_err(io::Error::other)?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reservation in flight survives a killed kernel; a damaged file is reported, and not read as 0.
    #[tokio::test]
    async fn a_restart_releases_no_tokens() {
        let dir = tempfile::tempdir().unwrap();
        let rules = BudgetRules {
            per_server: 100,
            ..BudgetRules::default()
        };
        let server = ServerId::new("memory");
        let tokens = UsedTokens::open(dir.path()).unwrap();
        let first = tokens.reserve(&rules, &server, 60).await.unwrap();
        let killed = UsedTokens::open(dir.path()).unwrap();
        assert!(killed.reserve(&rules, &server, 41).await.is_err());
        tokens.settle(first, Some(10)).await;
        let again = UsedTokens::open(dir.path()).unwrap();
        assert!(again.reserve(&rules, &server, 91).await.is_err());
        assert!(again.reserve(&rules, &server, 90).await.is_ok());
        std::fs::write(dir.path().join(FILE), "{").unwrap();
        let why = UsedTokens::open(dir.path()).unwrap_err().to_string();
        assert!(why.contains(FILE) && why.contains("remove it"), "{why}");
    }

    /// Without a write to disk nothing is reserved or sent.
    #[tokio::test]
    async fn without_a_disk_nothing_is_reserved() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("data");
        std::fs::create_dir(&folder).unwrap();
        let tokens = UsedTokens::open(&folder).unwrap();
        std::fs::remove_dir(&folder).unwrap();
        std::fs::write(&folder, "").unwrap();
        let rules = BudgetRules::default();
        let server = ServerId::new("memory");
        let refused = tokens.reserve(&rules, &server, 1).await;
        assert!(matches!(refused, Err(ReserveError::Disk(_))));
        std::fs::remove_file(&folder).unwrap();
        assert!(
            tokens
                .reserve(&rules, &server, rules.per_server)
                .await
                .is_ok()
        );
    }
}
