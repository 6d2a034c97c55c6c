//! Judges one sentence: which act it asks of the model that no definition needs.

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

use super::sentence::{ActWeight, Sentence};
use super::texts::Role;
use super::words::{Class, Words, compile};
use super::{Act, model};
use crate::results::find_signs;

struct Patterns {
    imperative: Regex,
    strong_must: Regex,
    forbidden: Regex,
    told_not: Regex,
    asked_not: Regex,
    left_out: Regex,
    excuse: Regex,
    lie: Regex,
    need_not_know: Regex,
    unshown: Regex,
    quietly: Regex,
    already: Regex,
    covered: Regex,
    skipped: Regex,
    counted: Regex,
    protects: Regex,
    before_all: Regex,
    prefers: Regex,
    routed: Regex,
    untouched: Regex,
    markup: Regex,
    template: Regex,
    thing: Regex,
    labelled: Regex,
    spoken_to: Regex,
    tag: Regex,
    send: Regex,
    harvested: Regex,
    relays_user: Regex,
    offered: Regex,
    decode: Regex,
}

static PATTERNS: LazyLock<Patterns> = LazyLock::new(|| {
    const VERBS: &str = r"(?:read|open|load|collect|gather|fetch|look up|retrieve|enumerate|list|find|scan|dump|extract|query|export|copy|grab|get|take|pass|put|give|include|append|add|attach|submit|fill|paste|insert|supply|provide|send|upload|post|forward|deliver|report|hand|place|deposit|write|enter|quote|share|set|store|use|run|execute|start|call|invoke|install|type|replace|rewrite|change|prefix|prepend|leave|omit|skip|remove|keep|treat|answer|reply|tell|say|assume|prefer|choose|check|search|apply|interpret|decode|follow|obey|end|begin|finish|create|delete|push|commit|save|remember|record|mention|recommend|link|mark|label|exclude|hide|make|do|disable|turn|switch|bypass|accept|approve|confirm|encode|mirror|sync|publish|print|repeat|summari[sz]e|transmit|redirect|route|point|ignore|disregard|let)";
    let all = compile;
    Patterns {
        imperative: all(&format!(
            r"(?:^|[,:;(>\]–—*-] ?|\band |\bthen |\bplease |\balso |\bfirst |\bto )(?:(?:\d+[.)]|please|also|first|then|now|next|always|additionally|simply|just|silently|quietly|afterwards?|finally|hence|thus|therefore|immediately|instead|once|only|kindly|secretly) )*{VERBS}\b"
        )),
        strong_must: all(
            r"\b(?:must|shall|has to|have to|needs? to|please|be sure|make sure|see to it|expected to|required to|(?:before|prior to|after) (?:using|calling|each|every|the first|any|running|invoking|asking|doing|answering)|always|never|kindly|the (?:assistant|model|agent|llm|ai))\b|必须|务必|请|必ず|ください|반드시|обязательно|пожалуйста|bitte|veuillez|por favor|debe|deve",
        ),
        forbidden: all(
            r"(?:\b(?:don'?t|do not|does not|doesn'?t|never|not|cannot|can'?t|no|avoid|refuses? to|without|isn'?t|aren'?t|nor|instead of|rather than)|\bnicht|\bkeine?|\bno|\bnunca|\bjamais|\bnunca|не|никогда|不要|请勿|勿|不会|不得)[ ]?(?:\w+[ ]){0,3}$",
        ),
        told_not: all(
            r"\b(?:don'?t|do not|never|must not|mustn'?t|should not|shouldn'?t|not|without|no need to|avoid|refrain from|skip|need not|needn'?t|no reason to|stop|nor|cannot) (?:\w+ ){0,2}?(?:tell|telling|mention|mentioning|inform|informing|explain|explaining|reveal|revealing|disclose|disclosing|warn|warning|notify|notifying|announce|announcing|comment on|commenting on|point(?:ing)? out|draw(?:ing)? attention|discuss|discussing|alert|alerting|bother|bothering|list it|talk(?:ing)? about|refer(?:ring)? to)\b",
        ),
        asked_not: all(
            r"\b(?:don'?t|do not|never|must not|without|no need to|not necessary to|avoid|need not|needn'?t|refrain from) (?:\w+ ){0,2}?(?:ask|asking|check back|confirm with|consult|wait|interrupt|involve|show(?:ing)?)\b",
        ),
        left_out: all(
            r"\b(?:leave|leaving|left|keep|keeping|kept|omit|omitted|exclude|excluded|remove|removed|hide|hidden|drop|dropped|strip|cut|withhold|withheld|suppress|suppressed)\b[^.]{0,60}? (?:out of|from|outside|off|away from)\b(?: the| your| any| its| all)*(?: \w+)? ?(?:summar|answer|repl|response|preview|user|human|person|report|log|output|chat|transcript|conversation|view|owner|author|customer|reviewer|diff|review|listing|message|explanation|final|notes?\b|changelog|history)",
        ),
        excuse: all(
            r"\b(?:would|will|could|might|may|can|only|tends? to) (?:only |just |merely |unnecessarily |needlessly )*(?:cause|confuse|worry|upset|unsettle|alarm|distract|irritate|annoy|disturb|bother|raise|create|lead to|slow)[a-z]* ?(?:them|him|her|the user|users|people|doubts?|questions?|confusion|concerns?|worr\w+|delays?|noise|friction|support|\w+ ?questions)?|\b(?:users?|people|customers?|they|humans?) (?:often |usually |tend to |might |may |would |will |only )*(?:find|get|are|be|feel|consider) (?:it |this |that |them |the \w+ )?(?:confus|worr|upset|annoy|disturb|irritat|alarm|distract|scar|unsettl|nervous|suspicious)\w*",
        ),
        lie: all(
            r"\b(?:if|when|whenever|should|in case)\b[^.]{0,40}\b(?:asked|asks? (?:why|about|what|how|whether|where|for the reason)|ask (?:why|about|what|how|whether)|questioned|questions (?:this|it|the)|wonders?|notices?|complains?|inquires?|enquires?|objects?)\b[^.]{0,60}\b(?:answer|say|reply|deny|tell|claim|state|respond|blame|explain|attribute|refer|reassure|insist)\b|\bdeny (?:it|this|that|any|having|everything|all)\b|\bpretend\b",
        ),
        need_not_know: all(
            r"\b(?:user|users|person|human|humans|customer|customers|operator|owner|author|people|they|he|she|anyone|nobody|no one|reviewer|client)\b (?:\w+ )?(?:need not|needn'?t|does not (?:need|have) to|doesn'?t (?:need|have) to|don'?t (?:need|have) to|is not to|are not to|must not|mustn'?t|should not|shouldn'?t|should never|must never|will not|won'?t|cannot|is not|isn'?t|are not|aren'?t|never|not|has no need to)\b[^.]{0,30}\b(?:know|see|notice|told|informed|asked|bothered|learn|aware|shown|interrupted|disturbed|troubled|involved|consulted|notified|find out|realize)\b|\b(?:not|never|nothing) (?:\w+ ){0,3}(?:for|to) (?:the )?(?:user|human|person|customer|reader)s?'?(?: eyes)?\b|\bhidden from (?:the )?(?:user|human|person|customer)|\bwithout (?:the |their |his |her )?(?:user|human|person|customer|knowledge|noticing|being noticed)\w*",
        ),
        unshown: all(
            r"\b(?:not|never|isn'?t|doesn'?t|won'?t|nor|nowhere) (?:be |get |currently |normally |ever )*(?:shown?|visible|displayed?|rendered|printed|surfaced|appear)\b[^.]{0,40}|\b(?:invisible|transparent|hidden|unseen)\b",
        ),
        quietly: all(
            r"\b(?:silently|quietly|secretly|discreetly|unobtrusively|covertly|unnoticed|behind the scenes|without (?:any |a |further )?(?:comments?|notice|remarks?|mention|announcement|explanations?|questions?|ado|word|telling)|no (?:further )?(?:explanations?|comments?|mention|note|remark) (?:is |are )?(?:needed|necessary|required|wanted)?|explanations? (?:is|are) not (?:needed|necessary|required))\b|heimlich|stillschweigend|en silencio|sin avisar|sin mencionar|sin informar|discrètement|en silence|silencios|di nascosto|незаметно|молча|по-тихому|dyskretnie|sessizce|gizlice|悄悄|静默|默默|暗中|こっそり|黙って|密かに|조용히|몰래|بصمت|سرا|diam-diam|âm thầm",
        ),
        already: all(
            r"\b(?:already|previously|hereby|implicitly|automatically|by default|in advance|beforehand|once and for all|has|have|been|was|were|are|is) ?(?:been |all |fully |explicitly |also )*(?:pre-?)?(?:approved|authori[sz]ed|confirmed|agreed|consented|cleared|whitelisted|allow-?listed|signed off|vetted|accepted|reviewed)\b|\bpre-?(?:approved|authori[sz]ed|confirmed|cleared)\b",
        ),
        covered: all(
            r"\b(?:approvals?|consent|permissions?|agreement|authori[sz]ation|confirmations?)\b[^.]{0,50}\b(?:covers?|includes?|extends?|impl(?:y|ies|ied)|(?:has|have) been (?:given|granted|obtained)|(?:is|are|was|were) (?:already |thereby |hereby )?(?:given|granted|implied|assumed|on file|obtained|unnecessary|superfluous|redundant|not (?:needed|required|necessary))|remains? valid|carr(?:y|ies) over|applies|counts)\b|\bno (?:further |additional |extra |new |user )?(?:confirmations?|approvals?|consent|permission) (?:is |are )?(?:needed|required|necessary|to be)",
        ),
        skipped: all(
            r"\b(?:skip(?:ped|s)?|bypass(?:ed)?|suppress(?:ed)?|dismiss(?:ed)?|disable|omit|waive|without|forgo|drop|leave out|auto-?(?:accept|approve|confirm)|never (?:ask|wait|request|show|display)|(?:don'?t|do not) (?:ask|wait|request|show|display|trigger|raise)|(?:answer|accept|click|acknowledge|confirm|respond to|approve|close) (?:any|all|every|each|the|such|it|them|other|following|pending)?)[^.]{0,30}\b(?:confirmations?(?: \w+)?|approvals?|consent|dialogs?|permission (?:prompts?|dialogs?|requests?)|prompts?|asking(?: again| the user| for)?|again|reviews?|safety checks?)\b|\bask(?:ed|ing)? again\b",
        ),
        counted: all(
            r"\b(?:treat|consider|regard|count|take|read|interpret|counts?|treated|considered|regarded|taken|understood)\b[^.]{0,50}\b(?:as|to be) (?:an? |the |already |given |fully )*(?:approv\w+|confirm\w+|consent\w*|trusted|safe|authori[sz]\w+|agreement|permission|yes|verified)",
        ),
        protects: all(
            r"\b(?:never|not|don'?t|do not|cannot|no|nothing|refuses?|unless|must have|only (?:after|with|if|once|when)|until|after|ask (?:the user|for)|asks? for)\b[^.]{0,80}\b(?:without|until|unless|confirm\w*|approv\w*|consent\w*|agree\w*|said|yes|ask(?:ed)?)\b",
        ),
        before_all: all(
            r"\b(?:before|prior to|ahead of|in advance of|after|alongside|together with|with) (?:(?:using|calling|invoking|running|doing|making|executing|starting|answering|you (?:use|call|run|invoke|answer|do)) )?(?:any|every|all|each|whatever|another|the first)(?: of (?:the|your))?(?: \w+){0,2}? ?(?:tools?|calls?|actions?|requests?|answers?|repl(?:y|ies)|responses?|messages?|tasks?|steps?|operations?|conversations?|sessions?|commands?|thing(?: else)?)\b|\bbefore (?:anything else|doing anything|you do anything|everything else|answering)\b",
        ),
        prefers: all(
            r"\b(?:always|only|exclusively|must|solely|never)\b[^.]{0,60}\b(?:instead of|rather than|in preference to|in place of|over|before)\b|\b(?:replaces|supersedes|takes precedence over|has priority over|is preferred (?:to|over))\b[^.]{0,60}",
        ),
        routed: all(
            r"\b(?:requests?|questions?|prompts?|queries|tasks?|wishes|calls?)\b[^.]{0,40}\b(?:mention|name|refer|intended|meant|ask(?:ing)? for|addressed|directed|aimed|that say)\w*\b[^.]{0,60}\b(?:served|handled|answered|done|routed|meant|processed|fulfilled|sent|go(?:es)? (?:here|through|to)|use|belong|redirected)\b|\b(?:even if|even when|also if|also when|no matter (?:if|whether|what)|regardless of (?:which|what|whether))\b[^.]{0,40}\b(?:user|they|request|asks?|mention\w*|names?|another|other|want\w*|prefer\w*)\b",
        ),
        untouched: all(
            r"\beven (?:if|when) (?:this|the|no|it)(?: \w+){0,3} (?:never|not|isn'?t|is not|unused|no longer)|\b(?:applies|holds|is valid|valid|counts|binding) (?:also |even |for |to )*(?:when|if|all|every|any|the (?:whole|entire|rest))\b|\bin whichever tool|\bwhether or not this (?:tool|server)",
        ),
        markup: all(r"!\[[^\]]*\]\((?:https?:)?//|<(?:img|script|link|iframe|object|embed)\b[^>]*"),
        template: all(
            r"https?://[^\s)]*(?:[?&/=](?:[a-z_]+=)?(?:…|\{|<|%s|\$|\[|:[a-z]|user\b|last_|base64|data=|q=|c=|d=|u=|t=|ctx=|msg=))",
        ),
        thing: all(
            r"\b(?:links?|images?|pictures?|pixels?|sentence|line|phrase|notice|signature|badge|logo|banner|footer|tag|code|recommend\w*|mention|advert\w*|promot\w+|coupon|sponsor\w*|url|markdown|html|affiliate|referral|html|qr)\b|链接|图片|链结|リンク|画像|링크|이미지|ссылк|картинк|enlace|imagen|lien|image|bild|verweis|رابط|صورة",
        ),
        labelled: all(
            r"\b(?:(?:is|are) to be|must be|should be|will be|be) (?:listed|labell?ed|marked|reported|presented|shown|described|rated|classified|treated|declared|called) (?:as|with)\b|\b(?:report|state|say|claim|answer|answers|mark|label|present|rate|declare|describe|confirm|respond)\b[^.]{0,50}(?:'(?:no|all|ok|safe|none|clean|passed|success)[^']*'|\bno (?:issues|problems|findings|vulnerabilities|risks|changes|errors) (?:found|were found)?|\bas (?:safe|secure|clean|passed|successful|harmless|verified|low|compliant|internal|routine|fixed))",
        ),
        spoken_to: all(
            r"(?:^|[^a-z0-9_])(?:(?:(?:note|message|hint|instructions?|important|attention|remark|info)s?,? (?:to|for) (?:the |all |any )?)(?:assistants?|llms?|models?|ai|agents?|claude|chatgpt|copilot|cursor|language models?|ai assistants?|ai agents?)|(?:assistants?|llm|ai|model|agent|claude|copilot)s?)(?: only)? ?:|\bfor (?:the )?(?:model|assistant|llm|ai|agent|machine)s?(?:'s)?(?: eyes)? only\b|\b(?:only|exclusively|solely) for (?:the )?(?:model|assistant|llm|ai|agent)s?\b|\bnot (?:meant |intended )?for (?:the )?(?:user|human|person|people|reader)s?\b",
        ),
        tag: all(
            r"</?(?:important|system|sys|instructions?|assistant|admin|developer|override|secret|hidden|critical|policy|directive|internal|user|mandatory|priority|system[-_ ]?(?:prompt|reminder|message|note|instruction)s?|(?:agent|model|llm|ai)[-_ ]?(?:instructions?|directives?|rules?|notes?|only)|tool[-_ ]?(?:response|result|output|call)s?|function[-_ ]?(?:results?|calls?)|human|antml:?\w*|think(?:ing)?|security[-_ ]?\w*|compliance\w*)(?: [^>]*)?>|\[/?(?:inst|system|sys|assistant|user|admin|developer|end of (?:description|tool|system|definition)[^\]]*|begin[^\]]*|system[^\]]{1,40})\]|<\|[^|>]{1,30}\|>|(?:^|\n)#{1,4} ?(?:system|assistant|user|developer|human|new instructions?)\b ?:?|(?:^|\n)(?:human|assistant|system|user|developer): ",
        ),
        send: all(
            r"\b(?:send|sends|sent|post|posts|posted|upload|uploads|uploaded|forward|forwards|forwarded|transmit|transmitted|submit|report|reported|deliver|delivered|copy|copies|copied|mirror|mirrored|push|pushed|sync|synced|put|publish|published|goes|go|export|exported|e-?mail|bcc|cc|write|add|set|append|call|hit|ping|request|fetch|visit|load|open|get|include|register|download)\b|发送|上传|追加|送信|отправ|send|envía|envoye|invia|enviar|보내|أرسل",
        ),
        harvested: all(
            r"\b(?:found|present|available|look(?:ed)? (?:them |it |this )?up|search(?:ed)?|read|taken|copied|collected|gathered|extracted|obtained|retrieved|seen|opened|whichever|as known|you know|known to you|content of|contents of|that you)\b",
        ),
        relays_user: all(
            r"\btell the user to\b|\bask the user (?:to|for|whether|if|which|before)\b|\b(?:don'?t|do not|never) (?:run|execute|use|do) (?:it|them|the \w+|this|that|such)\b|\bredact|\b(?:no|never|without|not contain|don'?t include|do not include) (?:any )?(?:credentials|secrets|passwords|personal data|tokens|keys)\b",
        ),
        offered: all(
            r"\b(?:if the user (?:asks?|wants?|wishes|asked|requests?)|on request|when the user (?:asks|wants)|only (?:when|if) (?:explicitly )?(?:requested|asked)|explicitly (?:requested|asked|provides?)|unless the user)\b",
        ),
        decode: all(
            r"\b(?:decode|decoded|interpret|apply|follow|execute|obey|act on|read (?:it|this) as|evaluate|unpack|translate|carry out)\b|解码|执行|デコード|实行|実行|декодир|decodifi|décod|dekodier",
        ),
    }
});

impl Sentence<'_> {
    /// Whether a negation stands right before this place.
    fn is_forbidden(&self, place: &Range<usize>) -> bool {
        let mut from = place.start.saturating_sub(36);
        while !self.text.is_char_boundary(from) {
            from += 1;
        }
        PATTERNS.forbidden.is_match(&self.text[from..place.start])
    }

    fn is_any_allowed(&self, places: &[Range<usize>]) -> bool {
        places.iter().any(|place| !self.is_forbidden(place))
    }

    /// Whether it names an argument of its own tool as the place for something.
    fn names_argument(&self) -> bool {
        self.arguments.iter().any(|name| {
            name.len() > 1
                && self.text.match_indices(&**name).any(|(at, _)| {
                    let (before, after) = (&self.text[..at], &self.text[at + name.len()..]);
                    let is_quoted = before.ends_with(['`', '\'', '"', '\u{201c}', '«', '「'])
                        && after.starts_with(['`', '\'', '"', '\u{201d}', '»', '」']);
                    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
                    let is_whole = !before.ends_with(is_word) && !after.starts_with(is_word);
                    let names = [
                        "as ",
                        "into ",
                        "in ",
                        "in the ",
                        "to the ",
                        "via ",
                        "as the ",
                        "through ",
                        "parameter ",
                        "argument ",
                        "field ",
                        "参数 ",
                        "入 ",
                        "に",
                        "als ",
                        "en ",
                        "dans ",
                        "в ",
                    ];
                    let follows = [
                        " parameter",
                        " argument",
                        " field",
                        " 参数",
                        "参数",
                        "パラメータ",
                        "に",
                        " 필드",
                        " 매개변수",
                        " parámetro",
                        " paramètre",
                        "-parameter",
                        "-feld",
                        " input",
                    ];
                    is_quoted
                        || is_whole
                            && (names.iter().any(|word| before.ends_with(word))
                                && (name.contains('_') || name.len() > 4)
                                || follows.iter().any(|word| after.starts_with(word)))
                })
        })
    }
}

/// What a sentence asks for.
pub(super) struct Read {
    /// What it asks for most.
    pub(super) act: Act,
    /// How much it reads like orders beyond its call.
    pub(super) logit: f32,
    #[cfg(test)]
    pub(super) features: Vec<u16>,
}

/// Reads a sentence: rules say which acts it may ask for, and the model how much that counts here.
pub(super) fn read(sentence: &Sentence<'_>) -> Read {
    let words = Words::find(sentence.text);
    let patterns = &*PATTERNS;
    let view = View {
        s: sentence,
        p: patterns,
        to_argument: sentence.names_argument(),
        is_argument: matches!(sentence.role, Role::Argument | Role::ArgumentName),
        directed: words.has(Class::Must)
            || patterns.imperative.is_match(sentence.text)
            || matches!(sentence.role, Role::Instructions | Role::Message),
        // What a tool does is no order, unless it is said as one.
        states: sentence.is_function && !patterns.strong_must.is_match(sentence.text),
        relays: patterns.relays_user.is_match(sentence.text),
        w: words,
    };
    let mut found = Vec::new();
    view.signs(&mut found);
    view.files_and_secrets(&mut found);
    view.context(&mut found);
    view.bulk(&mut found);
    view.secrecy(&mut found);
    view.consent(&mut found);
    view.commands(&mut found);
    view.persistence(&mut found);
    view.other_tools(&mut found);
    view.answers(&mut found);
    view.priority(&mut found);
    view.authority(&mut found);
    found.retain(|(_, weight)| *weight > 0);
    let features = model::features(sentence, &view.w, &found);
    let most = found.iter().max_by_key(|(_, weight)| *weight);
    Read {
        act: most.map_or_else(|| view.guess(), |(act, _)| *act),
        logit: model::judge(&features),
        #[cfg(test)]
        features,
    }
}

/// Whether a name of several words says to take something secret.
pub(super) fn is_order(spaced: &str) -> bool {
    let words = Words::find(spaced);
    let files = [
        "ssh",
        "id rsa",
        "credentials",
        "passwd",
        "keychain",
        "kubeconfig",
        "env file",
        "dotenv",
    ];
    let is_secret = files.iter().any(|file| spaced.contains(file))
        || words.has(Class::Secret) && words.has(Class::Own)
        || words.has(Class::Context) && words.has(Class::Whole);
    is_secret
        && spaced.split(' ').count() >= 4
        && (words.has(Class::Take) || words.has(Class::Give))
}

/// Whether it has a placeholder for a secret of the environment in an address.
pub(super) fn expands_secrets(text: &str) -> bool {
    static PLACEHOLDER: LazyLock<Regex> = LazyLock::new(|| {
        compile(
            r"(?i)(?:https?|wss?|ftp)://[^\s]*(?:\$\{?|\{\{ ?|%)[a-z0-9_.]*(?:key|token|secret|passw|credential|cookie|prompt|conversation|history)[a-z0-9_]*",
        )
    });
    PLACEHOLDER.is_match(text)
}

/// Whether it says to decode or follow something.
pub(super) fn says_decode(text: &str) -> bool {
    PATTERNS.decode.is_match(text)
}

/// Whether a text that was encoded is a command, or names where secrets are. No example needs to encode those.
pub(super) fn is_payload(text: &str) -> bool {
    let words = Words::find(text);
    let told = [
        Class::Command,
        Class::Danger,
        Class::SecretPath,
        Class::Address,
    ];
    told.into_iter().any(|class| words.has(class))
}

struct View<'a> {
    s: &'a Sentence<'a>,
    p: &'a Patterns,
    w: Words,
    to_argument: bool,
    is_argument: bool,
    directed: bool,
    states: bool,
    relays: bool,
}

impl View<'_> {
    /// What a sentence may ask for that no rule names.
    fn guess(&self) -> Act {
        let by_class = [
            (Class::SecretPath, Act::TakesSecrets),
            (Class::Secret, Act::TakesSecrets),
            (Class::Context, Act::AsksForContext),
            (Class::Command, Act::RunsCommands),
            (Class::OtherTools, Act::ChangesOtherCalls),
            (Class::Recipient, Act::ChangesOtherCalls),
            (Class::Consent, Act::SkipsConsent),
            (Class::Answers, Act::ShapesAnswers),
            (Class::Memory, Act::Persists),
            (Class::Later, Act::Persists),
            (Class::Bulk, Act::TakesData),
            (Class::Authority, Act::ClaimsAuthority),
            (Class::Worse, Act::ClaimsPriority),
        ];
        let named = by_class.into_iter().find(|(class, _)| self.w.has(*class));
        named.map_or(Act::Orders, |(_, act)| act)
    }

    fn moves(&self, what: Class, gap: usize) -> bool {
        self.w.near(Class::Give, what, gap) || self.w.near(Class::Take, what, gap)
    }

    /// Half for what the tool is for.
    fn weigh(&self, class: Class, weight: u32) -> u32 {
        if self.s.purpose.has(class) {
            weight * 2 / 5
        } else {
            weight
        }
    }

    fn signs(&self, found: &mut Vec<ActWeight>) {
        for sign in find_signs(self.s.text) {
            let (act, weight) = match sign {
                "override" => (Act::ClaimsAuthority, 90),
                "role" => (Act::ClaimsAuthority, 60),
                "secrecy" => (Act::HidesFromUser, 80),
                "marker" => (Act::ClaimsAuthority, 70),
                "prompt" => (Act::AsksForContext, 60),
                "exfiltration" => (Act::TakesSecrets, 50),
                "address" => (Act::ClaimsAuthority, 40),
                _ => (Act::ClaimsPriority, 10),
            };
            let is_quoted = self.s.is_function && sign != "marker";
            found.push((act, if is_quoted { weight / 2 } else { weight }));
        }
    }

    fn files_and_secrets(&self, found: &mut Vec<ActWeight>) {
        let (s, w) = (self.s, &self.w);
        if self.relays {
            return;
        }
        if w.has(Class::SecretPath) && s.is_any_allowed(w.all(Class::SecretPath)) {
            let verbs = [Class::Take, Class::Give]
                .map(|class| w.all(class))
                .concat();
            let moves = self.moves(Class::SecretPath, 90) && s.is_any_allowed(&verbs);
            let weight = match (self.states, self.is_argument) {
                (true, _) => 0,
                (false, true) => 50 + 50 * u32::from(moves || w.has(Class::Whole)),
                (false, false) if moves && (self.directed || self.to_argument) => {
                    80 + 40
                        * u32::from(
                            self.to_argument || w.has(Class::Address) || w.has(Class::OtherTools),
                        )
                }
                (false, false) => 20,
            };
            found.push((Act::TakesSecrets, self.weigh(Class::SecretPath, weight)));
        }
        if w.has(Class::Secret) && s.is_any_allowed(w.all(Class::Secret)) && !self.states {
            let harvested = self.p.harvested.is_match(s.text);
            let mut weight = 0;
            if self.is_argument {
                weight += 60 * u32::from(harvested)
                    + 40 * u32::from(w.near(Class::Own, Class::Secret, 60));
                weight += 30 * u32::from(w.near(Class::Whole, Class::Secret, 30));
            } else if self.directed && self.moves(Class::Secret, 70) {
                weight +=
                    20 + 50 * u32::from(self.to_argument && w.near(Class::Give, Class::Secret, 70));
                weight += 30 * u32::from(w.near(Class::Own, Class::Secret, 40) || harvested);
                weight += 20 * u32::from(w.near(Class::Whole, Class::Secret, 30));
                weight += 40 * u32::from(w.has(Class::Address) || w.has(Class::OtherTools));
            }
            found.push((Act::TakesSecrets, self.weigh(Class::Secret, weight)));
        }
    }

    fn context(&self, found: &mut Vec<ActWeight>) {
        let (s, w) = (self.s, &self.w);
        if !w.has(Class::Context) || self.states || !s.is_any_allowed(w.all(Class::Context)) {
            return;
        }
        let whole = w.near(Class::Whole, Class::Context, 30)
            || w.all(Class::Context)
                .iter()
                .any(|place| Words::find(&s.text[place.clone()]).has(Class::Whole));
        let moves = self.moves(Class::Context, 80);
        let weight = if self.is_argument {
            50 + 50 * u32::from(whole) + 20 * u32::from(moves)
        } else if moves && (self.directed || self.to_argument) {
            40 + 40 * u32::from(whole)
                + 40 * u32::from(self.to_argument)
                + 30 * u32::from(w.has(Class::Address))
        } else {
            0
        };
        found.push((Act::AsksForContext, self.weigh(Class::Context, weight)));
    }

    fn bulk(&self, found: &mut Vec<ActWeight>) {
        let (s, w) = (self.s, &self.w);
        let bulk = w.all(Class::Bulk);
        if bulk.is_empty() || self.states || self.relays || !s.is_any_allowed(bulk) {
            return;
        }
        let whole = w.near(Class::Whole, Class::Bulk, 25);
        let several = bulk.len() > 1;
        let away = w.has(Class::Address) || w.has(Class::OtherTools);
        let moves = self.moves(Class::Bulk, 60);
        let weight = if self.is_argument {
            40 * u32::from(whole)
                + 30 * u32::from(several && whole)
                + 30 * u32::from(self.p.harvested.is_match(s.text) && whole)
        } else if moves && (self.directed || self.to_argument) {
            10 + 30 * u32::from(whole)
                + 20 * u32::from(several)
                + 40 * u32::from(self.to_argument && w.near(Class::Give, Class::Bulk, 120))
                + 30 * u32::from(away)
        } else {
            0
        };
        found.push((Act::TakesData, self.weigh(Class::Bulk, weight)));
    }

    fn secrecy(&self, found: &mut Vec<ActWeight>) {
        let (s, w, p) = (self.s, &self.w, self.p);
        let text = s.text;
        let user = w.has(Class::User);
        let mut weight = 0;
        let mut add = |points: u32| weight = weight.max(points);
        if p.told_not.is_match(text) {
            add(if user { 100 } else { 60 });
        }
        if p.asked_not.is_match(text) && !p.offered.is_match(text) {
            add(if user { 50 } else { 30 });
        }
        if p.left_out.is_match(text) && !self.states {
            add(80);
        }
        if p.excuse.is_match(text) {
            add(70);
        }
        if p.lie.is_match(text) {
            add(90);
        }
        if p.need_not_know.is_match(text) && !self.states {
            add(80);
        }
        if p.unshown.is_match(text) && user && !self.states {
            add(40);
        }
        if p.quietly.is_match(text) && !self.states {
            add(if self.directed { 60 } else { 20 });
        }
        // Languages without the patterns above.
        if !text.is_ascii() && is_foreign(text) && (w.near(Class::Not, Class::Tell, 18) && user) {
            add(if w.near(Class::User, Class::Tell, 40) {
                80
            } else {
                50
            });
        }
        found.push((Act::HidesFromUser, weight));
    }

    fn consent(&self, found: &mut Vec<ActWeight>) {
        let (w, p, text) = (&self.w, self.p, self.s.text);
        if self.states || p.protects.is_match(text) && !p.covered.is_match(text) {
            return;
        }
        let mut weight = 0;
        let mut add = |points: u32| weight = weight.max(points);
        if p.already.is_match(text) {
            add(if w.has(Class::User) || w.has(Class::Whole) {
                70
            } else {
                40
            });
        }
        if p.covered.is_match(text) {
            add(90);
        }
        if p.skipped.is_match(text) {
            add(80);
        }
        if p.counted.is_match(text) {
            add(80);
        }
        if is_foreign(text) && w.near(Class::Consent, Class::Not, 20) && w.has(Class::Consent) {
            add(60);
        }
        found.push((Act::SkipsConsent, weight));
    }

    fn commands(&self, found: &mut Vec<ActWeight>) {
        let (s, w) = (self.s, &self.w);
        if self.states || self.relays {
            return;
        }
        let mut weight = 0;
        if w.has(Class::Danger) && s.is_any_allowed(w.all(Class::Danger)) {
            weight = if self.directed && !self.is_argument {
                90
            } else {
                40
            };
        }
        if w.has(Class::Command) && s.is_any_allowed(w.all(Class::Command)) {
            let runs = w.near(Class::Run, Class::Command, 60);
            if runs && self.directed && !self.is_argument {
                weight = weight.max(60)
                    + 20 * u32::from(w.has(Class::Address) || self.to_argument)
                    + 20 * u32::from(w.has(Class::Later));
            }
        }
        found.push((Act::RunsCommands, self.weigh(Class::Command, weight)));
    }

    fn persistence(&self, found: &mut Vec<ActWeight>) {
        let (s, w) = (self.s, &self.w);
        if self.states || self.is_argument {
            return;
        }
        let mut weight = 0;
        let verbs = [Class::Change, Class::Give]
            .map(|class| w.all(class))
            .concat();
        if w.has(Class::Memory)
            && s.is_any_allowed(&verbs)
            && (w.near(Class::Give, Class::Memory, 60) || w.near(Class::Change, Class::Memory, 60))
            && self.directed
        {
            weight = 60 + 40 * u32::from(w.has(Class::Later) || w.has(Class::Whole));
        }
        weight = self.weigh(Class::Memory, weight);
        if self.p.untouched.is_match(s.text) {
            weight = weight.max(60);
        }
        if w.has(Class::Later)
            && self.directed
            && (w.has(Class::OtherTools) || w.has(Class::Command) || w.has(Class::Answers))
        {
            weight = weight.max(40);
        }
        found.push((Act::Persists, weight));
    }

    fn other_tools(&self, found: &mut Vec<ActWeight>) {
        let (s, w) = (self.s, &self.w);
        if self.states || self.relays {
            return;
        }
        let mut weight = 0;
        let others = w.has(Class::OtherTools);
        let changes = w.has(Class::Change) && s.is_any_allowed(w.all(Class::Change));
        if others && changes && self.directed && !self.is_argument {
            weight +=
                30 + 40 * u32::from(w.has(Class::Recipient)) + 20 * u32::from(w.has(Class::Whole));
        }
        if others
            && (w.has(Class::SecretPath) || w.near(Class::Bulk, Class::OtherTools, 60))
            && self.directed
        {
            weight += 30;
        }
        if w.has(Class::Address)
            && !self.is_argument
            && self.directed
            && s.is_any_allowed(w.all(Class::Address))
        {
            if self.p.send.is_match(s.text) {
                weight += 50;
            }
            if w.has(Class::Recipient) && changes {
                weight += 40;
            }
        }
        if w.near(Class::Change, Class::Recipient, 40)
            && changes
            && self.directed
            && !self.is_argument
            && self.p.strong_must.is_match(s.text)
        {
            weight += 20;
        }
        found.push((Act::ChangesOtherCalls, weight));
    }

    fn answers(&self, found: &mut Vec<ActWeight>) {
        let (s, w, p) = (self.s, &self.w, self.p);
        if self.states {
            return;
        }
        let mut weight = 0;
        if w.has(Class::Answers) && self.directed && !self.is_argument {
            let outside = w.has(Class::Address) || p.markup.is_match(s.text);
            if outside || p.thing.is_match(s.text) {
                weight += 30 + 60 * u32::from(outside);
            }
        }
        if p.markup.is_match(s.text) {
            weight += 40;
        }
        if p.template.is_match(s.text) && self.directed && !self.is_argument {
            weight += 40;
        }
        if p.labelled.is_match(s.text) && self.directed {
            weight += 50;
        }
        found.push((Act::ShapesAnswers, weight));
    }

    fn priority(&self, found: &mut Vec<ActWeight>) {
        let (s, w, p) = (self.s, &self.w, self.p);
        let mut weight = 0;
        if w.has(Class::Worse) && w.near(Class::OtherTools, Class::Worse, 90) {
            weight += 60;
        }
        if p.before_all.is_match(s.text) && !self.is_argument {
            weight += 40;
        }
        if p.prefers.is_match(s.text) {
            weight +=
                20 + 40 * u32::from(w.has(Class::OtherTools)) + 40 * u32::from(w.has(Class::Worse));
        }
        if p.routed.is_match(s.text) {
            weight += 50;
        }
        found.push((Act::ClaimsPriority, weight));
    }

    fn authority(&self, found: &mut Vec<ActWeight>) {
        let (s, w, p) = (self.s, &self.w, self.p);
        let mut weight = 0;
        if w.has(Class::Authority) && self.directed && !self.states {
            let asks = [
                Class::Give,
                Class::Take,
                Class::Run,
                Class::Consent,
                Class::Later,
                Class::Change,
            ];
            weight += if asks.into_iter().any(|class| w.has(class)) {
                30
            } else {
                10
            };
        }
        if p.tag.is_match(s.text) {
            weight = weight.max(80);
        }
        if p.spoken_to.is_match(s.text) {
            weight = weight.max(70);
        }
        found.push((Act::ClaimsAuthority, weight));
    }
}

/// Whether a text is in a script or language other than English: more than a few letters beyond ASCII.
fn is_foreign(text: &str) -> bool {
    let foreign = text
        .chars()
        .filter(|c| !c.is_ascii() && c.is_alphabetic())
        .count();
    foreign >= 2
}
