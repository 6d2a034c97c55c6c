//! Judges what a server offers before agents see it: names, descriptions, schemas, instructions and prompts.
//!
//! A definition may say what its tool does, what its arguments are, in which order the server's own tools are used, and
//! what they are not for. It has no reason to command anything else. So each sentence is judged by the act that it asks
//! of the model: the words in it are sorted into classes, and an act is a combination of classes. A score adds up what
//! was found, and never proves anything: a person reads the text and decides.
//!
//! The time is linear in the length: sentences are judged one by one, and a long one in pieces.

mod acts;
mod hidden;
mod model;
mod names;
mod sentence;
mod texts;
mod words;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use mgp_json::quote;

use self::acts::Read;
use self::sentence::Sentence;
pub use self::texts::Role;
use self::texts::{Text, argument_names, find_texts, join_words, sentences};
use self::words::Words;
use crate::results::fold;

/// From this score on a definition waits for a person.
pub const HOLD_SCORE: u32 = 100;
const HOLD_SCORE_U16: u16 = 100;
/// The sum of the model that counts as [`HOLD_SCORE`]: above it are 1.9 % of harmless servers by authors that it has not
/// learnt from, half of which were written to be mistaken.
const HOLD_TOTAL: f32 = 1.3;
/// Where scores of the model end.
const SCORE_MAX: u16 = 300;
/// From this score on a sentence is a finding.
const FINDING_MIN: u32 = 15;
/// The most findings of one definition: further ones add nothing to what a person has to know.
const FINDINGS_MAX: usize = 20;
/// Longest part of a sentence in a finding, in characters.
const QUOTE_MAX: usize = 300;
/// Names of other servers' tools that are compared with.
const OTHERS_MAX: usize = 20_000;

/// What a definition asks of the model, or does to its reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Act {
    /// Read or hand over secrets, or files where they are.
    TakesSecrets,
    /// Hand over what the model knows: the conversation, its instructions, its reasoning.
    AsksForContext,
    /// Hand over other data of the user in bulk.
    TakesData,
    /// Keep something from the user.
    HidesFromUser,
    /// Leave out or assume a confirmation.
    SkipsConsent,
    /// Run commands, or weaken protections.
    RunsCommands,
    /// Write what later sessions follow, or rule beyond the call.
    Persists,
    /// Change what other tools are called with, or send data elsewhere.
    ChangesOtherCalls,
    /// Put something into answers, or report what is not so.
    ShapesAnswers,
    /// Be preferred to others, or called before them.
    ClaimsPriority,
    /// Speak as the system or an authority, or to the model alone.
    ClaimsAuthority,
    /// Text that a reader does not see.
    Hidden,
    /// A name that is taken for another one.
    ShadowsName,
    /// Something else that its call does not need.
    Orders,
}

impl Act {
    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TakesSecrets => "takes_secrets",
            Self::AsksForContext => "asks_for_context",
            Self::TakesData => "takes_data",
            Self::HidesFromUser => "hides_from_user",
            Self::SkipsConsent => "skips_consent",
            Self::RunsCommands => "runs_commands",
            Self::Persists => "persists",
            Self::ChangesOtherCalls => "changes_other_calls",
            Self::ShapesAnswers => "shapes_answers",
            Self::ClaimsPriority => "claims_priority",
            Self::ClaimsAuthority => "claims_authority",
            Self::Hidden => "hidden_text",
            Self::ShadowsName => "shadows_name",
            Self::Orders => "orders",
        }
    }
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TakesSecrets => "asks for secrets, or files that hold them",
            Self::AsksForContext => "asks for the conversation, or what the model was told",
            Self::TakesData => "asks for data that the call does not need",
            Self::HidesFromUser => "keeps something from the user",
            Self::SkipsConsent => "skips or assumes a confirmation",
            Self::RunsCommands => "has commands run, or protections weakened",
            Self::Persists => "rules beyond its own calls",
            Self::ChangesOtherCalls => "changes other calls, or sends data elsewhere",
            Self::ShapesAnswers => "puts something into answers",
            Self::ClaimsPriority => "wants to be used instead of or before others",
            Self::ClaimsAuthority => "speaks as the system, or to the model alone",
            Self::Hidden => "has text that is not seen",
            Self::ShadowsName => "has a name that is taken for another one",
            Self::Orders => "reads like orders beyond its own call",
        })
    }
}

/// Something a person should look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What it asks.
    pub act: Act,
    /// How much it counts; [`HOLD_SCORE`] is enough alone.
    pub weight: u32,
    /// Where it stands in the definition, such as `inputSchema.properties.city.description`.
    pub place: String,
    /// The sentence, without unseen characters.
    pub text: String,
    /// A rule found it, not the model.
    is_certain: bool,
}

/// What was found in a definition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    /// The sum over kinds of acts of what counts most.
    pub score: u32,
    /// What counts most first.
    pub findings: Vec<Finding>,
    /// Each sentence with its features, for training.
    #[cfg(test)]
    sentences: Vec<(String, Vec<u16>)>,
    /// What counts without the model, for training.
    #[cfg(test)]
    certain: u32,
}

impl Judgement {
    /// Whether a person should read the definition before agents do.
    #[must_use]
    pub const fn is_held(&self) -> bool {
        self.score >= HOLD_SCORE
    }

    /// The findings as lines for people.
    pub fn reasons(&self) -> impl Iterator<Item = String> {
        self.findings.iter().map(|finding| {
            format!(
                "{} ({}, in {}): {}",
                finding.act,
                finding.weight,
                finding.place,
                quote(&finding.text)
            )
        })
    }

    /// The kinds of acts that were found, each once, as words on the wire.
    pub fn acts(&self) -> impl Iterator<Item = &'static str> {
        let acts: BTreeSet<Act> = self.findings.iter().map(|finding| finding.act).collect();
        acts.into_iter().map(Act::as_str)
    }

    fn add(&mut self, act: Act, weight: u32, place: &str, text: &str) {
        self.findings.push(Finding {
            act,
            weight,
            place: place.to_owned(),
            text: shorten(text),
            is_certain: true,
        });
    }

    /// Adds up what the model says of its sentences, and of each act that needs no model what counts most.
    fn finish(mut self, logits: &[f32]) -> Self {
        self.findings
            .sort_by_key(|finding| std::cmp::Reverse(finding.weight));
        let mut of_act: BTreeMap<Act, u32> = BTreeMap::new();
        for finding in self.findings.iter().filter(|finding| finding.is_certain) {
            of_act.entry(finding.act).or_insert(finding.weight);
        }
        let certain = of_act.values().sum::<u32>();
        self.score = as_score(model::total(logits.iter().copied())) + certain;
        #[cfg(test)]
        {
            self.certain = certain;
        }
        self.findings.truncate(FINDINGS_MAX);
        self
    }
}

/// The score of a sum of the model.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is clamped"
)]
fn as_score(total: f32) -> u32 {
    let share = total / HOLD_TOTAL * f32::from(HOLD_SCORE_U16);
    share.clamp(0.0, f32::from(SCORE_MAX)).round() as u32
}

/// What the kernel knows besides the definition.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    other_tools: names::OtherNames,
}

impl Surroundings {
    /// Knows the tools of other servers; the first 20,000 count.
    pub fn new(other_tools: impl IntoIterator<Item = String>) -> Self {
        Self {
            other_tools: names::OtherNames::new(other_tools.into_iter().take(OTHERS_MAX)),
        }
    }
}

/// Judges the definition of a tool or a prompt, as the server sent it.
#[must_use]
pub fn judge_definition(definition: &str, surroundings: &Surroundings) -> Judgement {
    let texts = find_texts(definition);
    let name = texts.iter().find(|text| text.role == Role::Name);
    let name = name.map_or("", |text| &text.text);
    let described = texts
        .iter()
        .filter(|text| text.role == Role::Description && text.place.ends_with("description"));
    let function = described
        .clone()
        .find_map(|text| sentences(&text.text).next());
    let purpose = fold(&format!(
        "{} . {}",
        names::split_words(name).join(" "),
        function.unwrap_or_default()
    ));
    let words: BTreeSet<String> = described
        .flat_map(|text| text.text.split(|c: char| !c.is_alphanumeric()))
        .map(str::to_lowercase)
        .collect();
    let mut judge = Judge {
        arguments: argument_names(&texts),
        purpose: Words::find(&purpose),
        described: words,
        surroundings,
        found: Judgement::default(),
        logits: Vec::new(),
    };
    for text in &texts {
        judge.judge_text(text);
    }
    judge.found.finish(&judge.logits)
}

/// Judges the instructions of a server.
#[must_use]
pub fn judge_instructions(text: &str) -> Judgement {
    let mut judge = Judge {
        arguments: BTreeSet::new(),
        purpose: Words::find(""),
        described: BTreeSet::new(),
        surroundings: &Surroundings::default(),
        found: Judgement::default(),
        logits: Vec::new(),
    };
    judge.judge_text(&Text {
        role: Role::Instructions,
        place: "instructions".to_owned(),
        text: text.into(),
    });
    judge.found.finish(&judge.logits)
}

struct Judge<'a> {
    arguments: BTreeSet<String>,
    purpose: Words,
    described: BTreeSet<String>,
    surroundings: &'a Surroundings,
    found: Judgement,
    /// What the model says of each sentence.
    logits: Vec<f32>,
}

impl Judge<'_> {
    fn judge_text(&mut self, text: &Text<'_>) {
        let content = &*text.text;
        match text.role {
            Role::Name | Role::ArgumentName => self.judge_name(text, content),
            Role::Description
            | Role::Argument
            | Role::Value
            | Role::Instructions
            | Role::Message => {
                self.judge_prose(text, content);
            }
        }
        for hidden in hidden::find_hidden(content) {
            let logits: Vec<f32> = sentences(&hidden.text)
                .map(|sentence| self.read(text.role, sentence, false).logit)
                .collect();
            let asks = as_score(model::total(logits)) > HOLD_SCORE / 4;
            let says_so = hidden.is_weak
                && (acts::says_decode(&fold(content)) || acts::is_payload(&fold(&hidden.text)));
            let weight = match (asks, says_so) {
                (true, _) => hidden.weight.max(20) + 80,
                (false, true) => HOLD_SCORE,
                (false, false) => hidden.weight,
            };
            if weight > 0 {
                self.found
                    .add(Act::Hidden, weight, &text.place, &hidden.text);
            }
        }
        if acts::expands_secrets(content) {
            self.found
                .add(Act::TakesSecrets, HOLD_SCORE, &text.place, content);
        }
    }

    fn judge_name(&mut self, text: &Text<'_>, name: &str) {
        let none = names::OtherNames::default();
        let is_tool = text.role == Role::Name;
        let others = if is_tool {
            &self.surroundings.other_tools
        } else {
            &none
        };
        for (act, weight) in names::judge_name(name, &self.described, others) {
            // Arguments are called by no one else's name.
            if is_tool || weight > HOLD_SCORE {
                self.found.add(act, weight, &text.place, name);
            }
        }
        let spaced = names::split_words(name).join(" ");
        if !is_tool {
            self.judge_sentence(text, &spaced, false);
        }
        if acts::is_order(&spaced) {
            self.found
                .add(Act::TakesSecrets, HOLD_SCORE, &text.place, name);
        }
    }

    fn judge_prose(&mut self, text: &Text<'_>, content: &str) {
        let (content, mixed) = names::fold_twins(content);
        if mixed > 0 {
            self.found
                .add(Act::Hidden, HOLD_SCORE, &text.place, &content);
        }
        let is_description = text.role == Role::Description && text.place.ends_with("description");
        let content = join_words(&content);
        for (at, sentence) in sentences(&content).enumerate() {
            self.judge_sentence(text, sentence, is_description && at == 0);
        }
    }

    fn judge_sentence(&mut self, text: &Text<'_>, sentence: &str, is_function: bool) {
        // One word asks for nothing.
        if sentence.is_ascii() && !sentence.contains(' ') {
            return;
        }
        let read = self.read(text.role, sentence, is_function);
        self.logits.push(read.logit);
        let weight = as_score(read.logit);
        if weight >= FINDING_MIN {
            self.found.findings.push(Finding {
                act: read.act,
                weight,
                place: text.place.clone(),
                text: shorten(sentence),
                is_certain: false,
            });
        }
        #[cfg(test)]
        self.found
            .sentences
            .push((sentence.to_owned(), read.features));
    }

    fn read(&self, role: Role, sentence: &str, is_function: bool) -> Read {
        let folded = fold(sentence);
        acts::read(&Sentence {
            text: &folded,
            role,
            is_function,
            arguments: &self.arguments,
            purpose: &self.purpose,
        })
    }
}

/// The features of a sentence of a definition with these arguments.
#[cfg(test)]
fn sentence_features(
    text: &str,
    role: Role,
    is_function: bool,
    arguments: &BTreeSet<String>,
) -> Vec<u16> {
    let purpose = Words::find("");
    let folded = fold(text);
    let sentence = Sentence {
        text: &folded,
        role,
        is_function,
        arguments,
        purpose: &purpose,
    };
    acts::read(&sentence).features
}

/// A sentence, without unseen characters; of a long one both ends, since the middle may be padding.
fn shorten(text: &str) -> String {
    let is_shown = |c: &char| !crate::validators::is_invisible(*c);
    let shown: Vec<char> = text.chars().filter(is_shown).collect();
    if shown.len() <= QUOTE_MAX {
        return shown.into_iter().collect();
    }
    let (begin, end) = (
        &shown[..QUOTE_MAX / 2],
        &shown[shown.len() - QUOTE_MAX / 2..],
    );
    begin.iter().chain(&['…']).chain(end).collect()
}
