//! One thing that was looked at.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde_json::{Value, json};

/// How bad it is; the worst comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Soundness {
    /// Something does not work, or is open to others.
    Broken,
    /// It works, and may soon not, or not for everybody.
    Warning,
    /// It is as it should be.
    Good,
}

impl Soundness {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Broken => "broken",
            Self::Warning => "warning",
            Self::Good => "good",
        }
    }
}

/// What mends it without taking anything away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Remedy {
    /// Gives a file or folder these permissions.
    Mode(PathBuf, u32),
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DoctorFinding {
    pub(super) condition: Soundness,
    /// What was looked at, in a word.
    area: &'static str,
    told: String,
    /// What to type.
    command: Option<String>,
    remedy: Option<Remedy>,
    /// What `--fix` did, or why it could not.
    done: Option<String>,
}

impl DoctorFinding {
    fn new(condition: Soundness, area: &'static str, told: impl Into<String>) -> Self {
        Self {
            condition,
            area,
            told: told.into(),
            command: None,
            remedy: None,
            done: None,
        }
    }

    pub(super) fn broken(area: &'static str, told: impl Into<String>) -> Self {
        Self::new(Soundness::Broken, area, told)
    }

    pub(super) fn warning(area: &'static str, told: impl Into<String>) -> Self {
        Self::new(Soundness::Warning, area, told)
    }

    pub(super) fn good(area: &'static str, told: impl Into<String>) -> Self {
        Self::new(Soundness::Good, area, told)
    }

    /// With what to type.
    pub(super) fn mended_by(self, command: impl Into<String>) -> Self {
        Self {
            command: Some(command.into()),
            ..self
        }
    }

    /// With what `--fix` does.
    pub(super) fn or_by(self, remedy: Remedy) -> Self {
        Self {
            remedy: Some(remedy),
            ..self
        }
    }

    /// Mends it, where that can be done.
    pub(super) fn mend(&mut self) {
        let Some(Remedy::Mode(path, mode)) = &self.remedy else {
            return;
        };
        match fs::set_permissions(path, Permissions::from_mode(*mode)) {
            Ok(()) => {
                self.done = Some(format!("mended: it has mode {mode:o} now"));
                self.condition = Soundness::Good;
            }
            Err(e) => self.done = Some(format!("could not be mended: {e}")),
        }
    }

    /// On one line.
    pub(super) fn in_words(&self) -> String {
        let told = self.told.replace('\n', " ");
        let mut text = format!("{}: {told}", self.area);
        match (&self.done, &self.command) {
            (Some(done), _) => text += &format!(" ({done})"),
            (None, Some(command)) => text += &format!(" → {command}"),
            (None, None) => {}
        }
        text
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "condition": self.condition.word(), "area": self.area, "told": self.told,
            "command": self.command, "fixable": self.remedy.is_some(), "done": self.done,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_mended_is_said_and_is_broken_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        fs::write(&file, "x").unwrap();
        let mut finding = DoctorFinding::broken("files", "token is open\nto others")
            .mended_by("chmod 600 token")
            .or_by(Remedy::Mode(file.clone(), 0o600));
        assert_eq!(
            finding.in_words(),
            "files: token is open to others → chmod 600 token"
        );
        finding.mend();
        assert_eq!(
            fs::metadata(&file).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert!(
            finding
                .in_words()
                .ends_with("(mended: it has mode 600 now)")
        );
        assert_eq!(finding.condition, Soundness::Good);
        let mut gone =
            DoctorFinding::broken("files", "x").or_by(Remedy::Mode("/nowhere/x".into(), 0o600));
        gone.mend();
        assert_eq!(gone.condition, Soundness::Broken);
        assert!(gone.in_words().contains("could not be mended"));
    }
}
