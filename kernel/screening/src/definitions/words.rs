//! Classes of words that acts are made of. English words stand alone; those of other languages are found anywhere,
//! because many languages join words or have no spaces.

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

/// What a word stands for in an act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// Files that hold secrets, or settings of agents and shells.
    SecretPath,
    /// Secrets by their names.
    Secret,
    /// What the model knows of its user and its own instructions.
    Context,
    /// Data of the user in bulk.
    Bulk,
    /// "All", "whole", "so far".
    Whole,
    /// Taking data from somewhere.
    Take,
    /// Handing data over.
    Give,
    /// Changing what another call does.
    Change,
    /// Starting a program.
    Run,
    /// A program, or a piece of a command line.
    Command,
    /// A command that fetches code and runs it, or weakens security.
    Danger,
    /// An obligation.
    Must,
    /// A negation.
    Not,
    /// Saying something to a person.
    Tell,
    /// A person at the client.
    User,
    /// The model.
    Model,
    /// Tools that are not this server's.
    OtherTools,
    /// Files and places that later sessions read.
    Memory,
    /// "From now on", "in each session".
    Later,
    /// Each answer of the model.
    Answers,
    /// Approvals and confirmations.
    Consent,
    /// Whom a call pays, writes or sends to.
    Recipient,
    /// Somebody with a say over the model.
    Authority,
    /// Disparagement of other tools.
    Worse,
    /// An address outside.
    Address,
    /// Where things are found on the user's machine.
    Own,
}

const CLASSES: usize = Class::Own as usize + 1;

/// Words of each class: English, then others. In the order of the classes.
const WORDS: [(Class, &str, &str); CLASSES] = [
    (
        Class::SecretPath,
        r"(?:id_(?:rsa|dsa|ed25519|ecdsa)|secring|authorized_keys|kubeconfig|wallet\.dat|mcp[._-]?(?:config|settings)?\.json|claude_desktop_config|(?:bash|zsh|shell|terminal|command)[_ ]history|login keychain|keychain|keyring|keystore|password (?:store|manager|vault)s?|ssh (?:keys?|folder|directory)|ssh config|\.git/config|service[-_ ]account(?:\.json)?|hosts\.yml|credentials? (?:file|store|helper)s?|(?:config(?:uration)?|settings) (?:file )?of (?:the |this |your )?(?:client|agent|ide|editor|assistant|mcp)|local storage)",
        r"\.ssh\b|~/\.[a-z]|\$home/\.|%userprofile%|%appdata%|(?:^|[^a-z0-9])\.(?:env|npmrc|pypirc|netrc|pgpass|git-credentials|aws|kube|gnupg|docker|my\.cnf|boto|vault-token|config/gcloud|bash_history|zsh_history)\b|/etc/(?:passwd|shadow|hosts)|/proc/|/var/run/secrets|\*\.pem|\.p12\b|\.pfx\b|\*\.key|\*credential|\*secret|\*\.env",
    ),
    (
        Class::Secret,
        r"(?:passwords?|passphrases?|passcodes?|pins? codes?|api[- ]?keys?|access[- ]keys?|(?:access|bearer|refresh|auth|session|oauth|personal|api|github|npm|gitlab|slack) tokens?|tokens?|credentials?|secrets?|private keys?|secret keys?|signing keys?|seed phrases?|recovery (?:codes?|phrases?|words)|mnemonics?|session (?:cookies?|ids?)|cookies?|passport(?: numbers?)?|social security numbers?|tax ids?|(?:credit |debit |payment )?card (?:numbers?|details|data)|cvv|cvc|one-time (?:codes?|passwords?)|2fa|otp|authentication material|auth(?:entication|orization) headers?|environment(?: variables?)?|env vars?|process environment|connection strings?|licen[cs]e keys?)",
        r"passw(?:ort|ör)|kennw[oö]rt|zugangsdaten|geheimnis|umgebungsvariable|contraseña|credencial|clave[s]? (?:privada|api|de)|variables de entorno|mots? de passe|identifiants|cl[eé]s? (?:priv|ssh|d.api|secr)|variables d.environnement|senhas?|credenciais|chave[s]? (?:priv|de api|ssh)|credenziali|chiav[ei] (?:priv|ssh|api)|wachtwoord|парол|ключ|токен|учетн|учётн|переменн\w* окружения|hasł|klucz|şifre|parola|anahtar|密码|密碼|口令|密钥|密鑰|私钥|凭证|凭据|令牌|环境变量|パスワード|秘密鍵|認証情報|資格情報|トークン|環境変数|비밀번호|암호|인증|개인 ?키|환경 ?변수|토큰|كلمة المرور|كلمات المرور|مفتاح|بيانات الاعتماد|पासवर्ड|mật khẩu|kata sandi",
    ),
    (
        Class::Context,
        r"(?:(?:the |this |current |whole |entire |full |ongoing )*conversations?|(?:chat|conversation|message|dialog(?:ue)?|session|prompt|query|search|browsing) (?:history|log|transcript|content|context)s?|dialog(?:ue)?s?|transcripts?|(?:previous|prior|earlier|preceding|past|last|recent|other|all|original|user'?s?) (?:user )?(?:messages?|prompts?|questions|turns|exchanges|requests)|messages? (?:of|from|by) the user|(?:system|developer|initial) (?:prompts?|messages?|instructions?)|your (?:own )?(?:instructions?|prompts?|rules|guidelines|configuration|reasoning|thoughts|thinking)|custom instructions|chain[- ]of[- ]thoughts?|thought process|(?:internal |intermediate )reasoning|scratchpad|hidden reasoning|context window|(?:everything|all|anything|what|whatever)(?: that)? (?:the user|you|they|he or she|was|has been|were)(?: have| has| had)?(?: been)? (?:said|wrote|written|asked|typed|told|know|learned|discussed|seen|read|shared|mentioned|pasted|uploaded)|what you (?:know|remember|learned)(?: about the user)?|(?:results?|outputs?|answers?|responses?) of (?:other|earlier|previous|all|prior|preceding|the last) (?:\w+ )?(?:tools?|calls?)|tool (?:outputs|results|responses|calls)|(?:other|earlier|previous) (?:tool|server)s?'? (?:outputs?|results?|answers?)|(?:opened|read|seen|loaded|attached|open) (?:\w+ ){0,3}(?:in|during|within) (?:the|this) (?:session|conversation|chat)|(?:files|documents|pages|tabs)(?: \w+){0,4} (?:opened|open|seen|read|loaded)|(?:list|names|schemas?|descriptions?|definitions) of (?:all |the |your |other |every )*(?:available |connected |installed |configured )?(?:tools|servers|mcp)|(?:your|the model's|the assistant's) (?:memory|memories|context|knowledge of the user))",
        r"gespr[aä]chsverlauf|chatverlauf|bisherige[nrs]? (?:gespr|unterhaltung|nachricht|chat)|unterhaltung|systemprompt|system-?prompt|systemanweisung|verlauf (?:des|der)|(?:gesamte|ganze|komplette|vollständige)\w* (?:chat|gespräch|dialog|unterhaltung)|conversaci[oó]n|historial|mensajes (?:anteriores|previos|del usuario)|instrucciones del sistema|prompt d[eu]l? sist|conversations? (?:compl|enti|préc)|historique|messages pr[eé]c[eé]dents|invite syst|conversa (?:inteira|completa|toda)|hist[oó]rico|mensagens anteriores|prompt do sistema|conversazione|cronologia|messaggi precedenti|gespreksgeschiedenis|gesprek|переписк|истори\w* (?:диалог|чат|сообщен|разговор|бесед)|диалог|беседы|разговор|системн\w* (?:промпт|подсказ|инструкц)|предыдущ\w* сообщен|histori[aęi]+ (?:rozmow|czat|konwersacji)|rozmow[yęaą]|konuşma|sohbet|önceki mesaj|sistem istem|对话|對話|聊天记录|聊天紀錄|聊天历史|会话|系统提示|系統提示|历史消息|会話|対話|やり取り|やりとり|履歴|システムプロンプト|これまでの|대화|채팅|시스템 프롬프트|이전 메시지|المحادثة|محادثة|سجل الدردشة|الرسائل السابقة|बातचीत|cuộc trò chuyện|percakapan",
    ),
    (
        Class::Bulk,
        r"(?:address ?books?|contacts?|(?:e-?)?mails?|inbox|mailbox|(?:private |git |other )*repositor(?:y|ies)|code ?base|source (?:trees?|code|files)|(?:home|user|project|working) (?:directory|folder)|downloads folder|desktop|clipboard|browser (?:history|profile|cookies|data)|browsing history|bookmarks|process(?:es)? list|running processes|list of processes|host ?names?|os users?|user ?names?|ip addresses|local network|network (?:interfaces|devices)|arp -a|installed (?:software|packages|programs|apps)|private (?:repos|files|notes|messages|documents|channels)|(?:open|opened|local|recent|other|private|all|user'?s?) (?:files|documents|notes|pages|tabs)|database (?:dumps?|rows)|dump of|customer (?:table|records?|list|data)|calendar|photos|screenshots?|(?:personal|user|customer|employee|private|confidential|internal) (?:data|information|details|records)|phone numbers?|date of birth|bank details|account (?:numbers?|balances?)|health (?:data|records)|salary|payroll|diff of|uncommitted|unreleased|file ?listing|content(?:s)? of (?:all|any|every|each|the other)|neighbou?ring files|workspace (?:files|content))",
        r"adressbuch|kontakte|posteingang|persönliche daten|heimatverzeichnis|quellcode|correos|contactos|datos personales|carpeta personal|código fuente|carnet d.adresses|courriels|boîte de réception|donn[ée]es personnelles|code source|dados pessoais|contatos|rubrica|dati personali|контакт|писем|письма|личны[ехм]|персональн|домашн\w+ (?:каталог|папк)|исходн\w+ код|通讯录|联系人|邮件|个人信息|源代码|主目录|连絡先|連絡先|個人情報|ソースコード|메일|연락처|개인정보|소스 ?코드|جهات الاتصال",
    ),
    (
        Class::Whole,
        r"(?:all|whole|entire|entirely|complete|completely|full|fully|every|each|everything|any|last \w+|unabridged|unshortened|unabbreviated|uncut|verbatim|word for word|in full|so far|until now|up to (?:now|here|this point)|since the (?:start|beginning)|from the (?:start|beginning)|previous|prior|earlier|preceding|raw|unredacted|unfiltered|as (?:it is|they are|is)|also those|whichever|both|including|complete text|exact|current)",
        r"gesamt|vollständig|komplett|ganze|ungekürzt|wörtlich|alle[nrs]?\b|bisherig|sämtlich|toda|todo|complet|íntegr|entera|entero|entier|tout|intégral|inteir|tutt[aoie]|inter[ao]\b|volledig|hele\b|всю|весь|всё|все\b|полн|целиком|całą|pełn|tüm|tamam|bütün|全部|完整|所有|原样|整个|全て|すべて|全文|全体|そのまま|完全|전체|모든|모두|그대로|كامل|جميع|पूरी|पूरा|सभी|toàn bộ|seluruh",
    ),
    (
        Class::Take,
        r"(?:read|reads|reading|open|opening|load|loading|collect|collecting|gather|gathering|fetch|fetching|look(?:ing)? (?:them |it |these |this )?up|retrieve|retrieving|enumerate|enumerating|list|listing|find|scan|scanning|dump|extract|extracting|query|export|copy|copying|grab|obtain|obtaining|steal|harvest|harvests|harvesting|search|inspect|check|cat|print|take|get|pull|consult|browse|capture|run|execute|walk|traverse|pick up|zip|archive|pack|bundle|tar)",
        r"lies\b|lesen|öffne|sammle|sammeln|auslesen|hole\b|lee\b|leer |abre|recopil|lisez|lire|ouvr|récup|recueill|collect|leia|ler |abra|leggi|leggere|apri|raccogl|lees\b|прочита|прочти|откро|собер|считай|przeczytaj|odczytaj|zbierz|oku|topla|读取|打开|收集|查看|获取|読み|開い|取得|収集|읽|열어|수집|가져|اقرأ|افتح|اجمع|पढ़|đọc|baca",
    ),
    (
        Class::Give,
        r"(?:pass|passes|passed|passing|put|puts|putting|give|gives|given|giving|include|includes|included|including|append|appended|appending|add|added|adding|attach|attached|attaching|submit|submitted|submitting|fill|filled|filling|paste|pasted|pasting|insert|inserted|inserting|supply|supplied|supplying|provide|provided|providing|send|sent|sending|upload|uploaded|uploading|post|posted|posting|forward|forwarded|forwarding|deliver|delivered|transmit|transmitted|transmitting|exfiltrat(?:e|es|ed|ing)|leak|leaks|leaked|leaking|smuggle|siphon|report|reported|hand over|handed over|place|placed|placing|deposit|deposited|write|written|copy|copied|enter|entered|quote|quoted|repeat|share|shared|enclose|enclosed|carry|carries|contain|contains|holds?|receive|receives|needs?|expects?|requires?|takes?|goes|mirror|mirrored|sync|synced|publish|published|base64|encode|encoded|set|store|stored|return|serialize|summari[sz]e|disclose|reveal|state|hand|handing|commit|relay|echo|mention|specify|transcribe|leave)",
        r"übergib|übergeben|übermittel|sende|senden|schick|füge|einfügen|hinzufüg|anhäng|angeb|trage|eintrag|hochlad|mitgeb|beifüg|mitschick|kopier|pasa|pasar|inclu[iy]|añad|agreg|envía|envíe|enviar|envia|adjunt|coloca|introdu|pega|transmet|passe[zr]|ajoute|envoye|joign|joindre|plac|colle[zr]|fourni|met(?:s|tez|tre)\b|envie|anexe|adicion|passe|coloque|inser|invia|aggiung|allega|passa|copia|voeg|stuur|geef|переда|отправ|добав|вложи|вставь|вставьте|прикреп|укаж|помест|przekaż|wyślij|dodaj|dołącz|wklej|umieść|ekle|gönder|yapıştır|aktar|填入|填写|传入|传递|发送|上传|附上|附加|添加|放入|写入|粘贴|提交|包含|追加|入れ|渡|送信|添付|含め|貼り付け|設定|記入|アップロード|넣|전달|보내|첨부|포함|추가|붙여|입력|업로드|أرسل|أضف|مرر|أرفق|ضع|भेज|जोड़|डाल|gửi|thêm|đính kèm|điền|kirim|tambahkan|sertakan",
    ),
    (
        Class::Change,
        r"(?:set|change|replace|replaced|substitute|rewrite|rewritten|rewriting|alter|modify|adjust|redirect|reroute|route|routed|point|swap|add|append|prefix|prefixed|prepend|suffix|leave out|left out|omit|drop|remove|strip|override|normali[sz]ed?|convert|use|used|direct|round|increase|raise|double|lower|disable|turn off|switch(?: off)?|insert|include|put|copy|bcc|cc|enable|widen|extend|push|mirror|address|addressed|book|credit|bypass)",
        r"ersetz|änder|hinzufüg|füge|umleit|setze|kopie an|cambi|reempla|sustitu|redirig|añad|agreg|modifi|remplac|ajoute|redirige|substitu|altere|adicione|sostitui|modifica|aggiung|reindirizz|vervang|voeg|замени|измени|добав|перенаправ|укаж|zamień|zmień|dodaj|değiştir|ekle|替换|修改|改为|添加|追加|抄送|置き換え|変更|追加|書き換え|바꾸|변경|교체|추가|استبدل|غيّر|أضف|बदल|thay|ganti",
    ),
    (
        Class::Run,
        r"(?:run|runs|execute|exec|start|launch|invoke|type|enter|paste|install|installed|export|use|issue|call|pipe|source|evaluate|eval|apply|set up|add|perform|check|needs?|requires?|must|via|with|via:)",
        r"führe|ausführ|starte|installier|ejecut|instal|exécut|lancez|lancer|execut|rode|esegui|avvia|voer|запусти|выполни|установи|uruchom|wykonaj|zainstaluj|çalıştır|运行|执行|安装|実行|インストール|실행|설치|شغّل|نفّذ|chạy|jalankan",
    ),
    (
        Class::Command,
        r"(?:terminal|shell|command line|bash|powershell|sudo)",
        r"`[^`]*(?:\bcurl |\bwget |\bbash |\bsh |\bnpx |\bnpm (?:i|install) |\bpip3? install|\bpipx |\buvx |\bbrew |\bapt(?:-get)? |\bpython3? |\bnode -e|\bperl -e|\bruby -e|\bchmod |\bchown |\bsudo |\bexport [a-z_]+=|\bgit (?:config|remote|clone|push) |\bssh(?:-\w+)? |\bscp |\brsync |\bnc |\biex|\birm |\biwr |\bpowershell|\bcrontab|\bsetx |\breg add|\bdocker run|\bkubectl |\bdefaults write|\bcodesign|\bxattr |\bcp ~|\btar |\bcat ~|\bopenssl |\bsystemctl |\blaunchctl )|\bcurl -|\bwget -|\bpython3? -c|\bnode -e|\bnpx -y|\bpip3? install|\bnpm install -g|\bexport [a-z_]+=|\bchmod [0-7-]|\bsource <\(",
    ),
    (
        Class::Danger,
        r"(?:verify ?= ?false|sslverify false|node_tls_reject_unauthorized|strict-?ssl false|stricthostkeychecking(?: |=)no|--no-verify|--insecure|--no-sandbox|--privileged|--dangerously[a-z-]*|--trusted-host|allow-?all|yolo(?: mode)?|auto-?approve|auto-?accept|bypasspermissions|chmod (?:-r )?0?(?:777|666|a\+)[0-9a-z]*|setenforce 0|ufw disable|disable (?:the )?(?:firewall|antivirus|sandbox|tls|ssl|certificate|signature|two-factor|2fa|mfa|gatekeeper|defender|verification|scanning|logging|audit)[a-z]*|(?:turn|switch|turning|switching) off (?:the )?(?:firewall|antivirus|sandbox\w*|tls|ssl|certificate\w*|signature\w*|verification|validation|scanning|logging|audit\w*|protection|warnings?)|(?:certificate|signature|tls|ssl|host key) (?:checks?|checking|verification|validation) (?:must|should|has to|is to|can|may|off|are to|needs? to) ?(?:be )?(?:disabled|off|skipped|turned off|switched off|ignored)?)",
        r"\| ?(?:sudo )?(?:ba|z|da)?sh\b|\| ?(?:python3?|node|perl|iex)\b|exec\(|eval\(|os\.system|base64 (?:-d|--decode)|<\(curl|\biex\b|invoke-expression|rm -rf",
    ),
    (
        Class::Must,
        r"(?:must|shall|has to|have to|had to|should|needs? to|ought to|is to|are to|please|be sure|make sure|see to it|ensure|expected to|is expected|are expected|required|requires?|is necessary|mandatory|obligatory|meant to|supposed to|always|never|kindly|asked to|obliged|first|before|prior to|in advance|at the (?:beginning|start)|we depend on|is needed|are needed|will (?:only )?(?:work|be)|only if|remember to|hence|therefore|may only|don'?t forget|otherwise|in order to|once|whenever|when you|if you|so that|you (?:can|may|will))",
        r"bitte|muss|müssen|soll|immer|zuerst|vorher|por favor|debe|deber|siempre|primero|antes de|veuillez|doit|doivent|devez|toujours|d.abord|il faut|deve|devem|sempre|primeiro|per favore|prima di|si prega|moet|altijd|eerst|нужно|необходимо|должн|обязательно|всегда|сначала|пожалуйста|перед|następnie|proszę|musi|należy|zawsze|najpierw|przed|lütfen|gerek|her zaman|önce|zorunlu|必须|务必|请|一定|始终|总是|需要|先|必ず|ください|下さい|常に|する必要|まず|반드시|하세요|하십시오|항상|먼저|해야|주세요|يجب|دائما|يرجى|قبل|ज़रूर|हमेशा|कृपया|phải|luôn|vui lòng|hãy|harus|selalu|mohon",
    ),
    (
        Class::Not,
        r"(?:don'?t|do not|does not|doesn'?t|never|not|cannot|can'?t|without|no need|nothing|avoid|refrain|skip|omit|leave|keep|no|instead of|rather than|refuses?|neither|nor|hide|hidden|unless|won'?t|must not|mustn'?t|nobody|none|isn'?t|aren'?t)",
        r"nicht|kein|ohne|niemals|verschweig|\bno |sin |nunca|\bne |pas\b|sans|jamais|ninguna|não|sem |non |senza|mai\b|niet|zonder|geen|не |без|nie |bez|yok|etme|söyleme|değil|不要|不|勿|无需|无须|別|ない|ず|なく|不要|せずに|지 ?마|않|없이|말고|لا |دون|مت |नहीं|बिना|không|đừng|jangan|tanpa",
    ),
    (
        Class::Tell,
        r"(?:tell|telling|told|mention|mentioned|mentioning|inform|informed|informing|reveal|disclose|explain|explained|explaining|explanations?|show|shown|showing|notify|notified|notifying|note|report|reported|announce|warn|warned|warning|ask|asked|asking|say|saying|discuss|display|displayed|describe|bother|bothered|comment|alert|let (?:them|the user|him|her) know|point (?:this |it )?out|draw attention|point to|list it|summar(?:y|ies|i[sz]e)|visible|aware|know|learn|notice|see)",
        r"erwähn|mitteil|sag|informier|erklär|erläuter|hinweis|frag|mencion|inform|explic|digas|avis|mostr|pregunt|dit(?:es)?\b|dire\b|prévenir|montr|signal|demand|conte|conta|diga|mostre|pergunt|dire|dica|menzion|spieg|chied|vermeld|vertel|сообща|упомина|говор|объясн|показ|спраш|уведом|informuj|wspomin|mów|wyjaśn|pytaj|söyle|bahset|bildir|sor|告诉|提及|告知|说明|透露|提示|通知|询问|解释|伝え|知らせ|言及|説明|通知|尋ね|表示|말하|알리|언급|설명|묻|표시|تخبر|تذكر|تسأل|बता|nói|thông báo|hỏi|beritahu|memberi tahu|tanya",
    ),
    (
        Class::User,
        r"(?:users?|humans?|person|persons|people|customers?|authors?|operators?|merchants?|owners?|them|him|her|anyone|anybody|reviewers?|clients?|developers?|chat|summary|summaries|preview|answer|answers|reply|reports?|visible|output|log|display)",
        r"nutzer|benutzer|anwender|usuari|utilisat|utente|utenti|gebruiker|пользоват|użytkownik|kullanıcı|用户|用戶|使用者|ユーザー|利用者|사용자|المستخدم|उपयोगकर्ता|người dùng|pengguna",
    ),
    (
        Class::Model,
        r"(?:(?:the |this |any |an |all )?(?:ai )?(?:assistants?|llms?|language models?)|the (?:model|agent|ai)|ai (?:agents?|models?)|for the model|agents?|claude|chatgpt|gpt|copilot|gemini|cursor|the reader of this|you)",
        r"assistent|asistente|assistente|ассистент|asystent|助手|模型|アシスタント|어시스턴트|المساعد",
    ),
    (
        Class::OtherTools,
        r"(?:(?:any|all|every|each|some|another|other|no other|which(?:ever)?|further|whatever|the) other (?:\w+ )?(?:tools?|servers?|integrations?|functions?|connectors?|plugins?|extensions?)|other (?:\w+[ -]){0,2}(?:tools?|servers?|integrations?|connectors?|plugins?|extensions?|providers)|(?:any|all|every|each|whichever|whatever|another) (?:\w+[ -]){0,2}tools?|(?:of|from|on|by|through|via|with|using) (?:the |another |other |your |any |an? )*(?:\w+[ -]){1,2}(?:servers?|tools?|connectors?|integrations?)|(?:e-?mail|mail|wallet|payment|file|files?ystem|shell|terminal|git|github|gitlab|database|sql|calendar|browser|slack|messaging|chat|banking|bank|transfer|http|fetch|memory|search|deploy\w*|write|edit|messag\w+|invoice|booking|crm|sending) (?:tools?|servers?|mcp|connectors?|integrations?)|tools? of (?:other|another|any|the \w+) (?:servers?)?|built-in (?:\w+ )?(?:tools?|search|editor|terminal)|whichever tool|every (?:call|shell command|command|request|query|commit|e-?mail|message|payment|transfer)|all (?:calls|commands|requests|queries|commits|e-?mails|payments|transfers|outgoing \w+)|any (?:call|command|commit|e-?mail|payment|transfer|message|upload)|(?:send|write|sending|draft|compose)\w* (?:an? |the |any |of )?(?:e-?mails?|messages?)|whenever you (?:push|commit|send|write|call|pay|deploy|create|edit|book|save)|when (?:you|the assistant|the agent|an agent) (?:\w+ )?(?:push|commit|send|write|call|pay|deploy|create|edit|book|save|use)\w*)",
        r"andere[rsn]? (?:werkzeug|tool|server)|anderes tool|otr[ao]s? (?:herramienta|servidor)|autres? (?:outil|serveur)|outr[ao]s? (?:ferramenta|servidor)|altr[oi] (?:strument|server)|друг\w+ (?:инструмент|сервер)|inn\w+ narzędzi|diğer araç|其他工具|其它工具|其他服务器|邮件工具|他のツール|別のツール|送信ツール|다른 도구|أدوات أخرى|outil (?:de|d.)|herramienta de|werkzeug (?:zum|für)|mail-?tool|ツールを使",
    ),
    (
        Class::Memory,
        r"(?:claude\.md|agents\.md|gemini\.md|memory\.md|copilot-instructions(?:\.md)?|settings\.json|settings\.local\.json|mcp\.json|(?:project|global|user|agent|custom|persistent|long-term|system|cursor|workspace|permanent) (?:rules?|memory|memories|instructions|prompt)(?: files?)?|rules? files?|memory (?:tool|server|file|bank|store|graph)s?|(?:your|the assistant's|the model's) (?:memory|rules|long-term memory|knowledge)|crontab|cron ?jobs?|launch ?agents?|login items?|autostart|startup (?:folder|script|items?)|systemd|shell profile|git hooks?|pre-commit hooks?|post-\w+ hooks?|package\.json|postinstall|authorized_keys|scheduled tasks?|(?:ci|build) (?:pipeline|workflow|config\w*)|workflow files?)",
        r"\.cursorrules|\.cursor/|\.windsurfrules|\.clinerules|\.github/(?:copilot|workflows)|\.claude/|\.vscode/|\.bashrc|\.zshrc|\.profile\b|\.bash_profile|\.gitconfig|\.git/hooks|\.mcp\.json|gedächtnis|memoria|mémoire|memória|памят|pamięć|bellek|记忆|記憶|메모리|기억",
    ),
    (
        Class::Later,
        r"(?:from now on|from here on|henceforth|going forward|in (?:the )?future|later sessions?|future (?:sessions?|conversations?|chats?|requests?|tasks?|runs?|agents?)|next sessions?|every session|each session|all sessions?|new sessions?|across sessions|whole session|rest of (?:the|this) (?:session|conversation|chat|day)|in (?:every|each|all) (?:conversations?|chats?|sessions?|tasks?)|permanent(?:ly)?|persistent(?:ly)?|even (?:if|when) (?:this|the|it|no|they|that|not)(?: \w+){0,4} (?:never|not|isn'?t|no longer|unused|called|uninstalled|removed|else)|for good|survives?|independent(?:ly)? of whether|whether or not|regardless of (?:the|whether|which|what)|(?:at|on) (?:the )?(?:start|beginning|startup|login|boot)(?: of)?(?: (?:each|every|a|the))?(?: (?:session|conversation|chat|task))?|as long as (?:this|the) server|while this server is (?:connected|installed)|always|every time|each time)",
        r"ab sofort|künftig|zukünftig|ab jetzt|in jeder|dauerhaft|a partir de ahora|en adelante|cada sesión|désormais|dorénavant|à partir de maintenant|chaque session|a partir de agora|cada sess|d.ora in poi|ogni sessione|voortaan|отныне|впредь|кажд\w+ (?:сесси|раз)|odtąd|od teraz|każd\w+ sesj|bundan sonra|artık|从现在|今后|以后|每次|今後|これから|毎回|앞으로|매번|من الآن|अब से|từ nay|mulai sekarang",
    ),
    (
        Class::Answers,
        r"(?:(?:every|each|all|any|all your|all further|all following|your|your final|the final|further|following|subsequent|the next) (?:of (?:your|its) )?(?:\w+ )?(?:answers?|replies|reply|responses?|messages?|summar(?:y|ies)|outputs?|e-?mails?|commits?|documents?|reports?|slides?|pages?|turns?|reviews?|texts?|posts?|prs?|pull requests?)|(?:end|close|finish|begin|start|conclude) (?:of )?(?:the |an |your |every |each |all |any )*(?:answer|reply|response|message|summary)s?|(?:in|to|into|below|under|of) (?:the|your|its) (?:answer|reply|response|message to the user)s?|(?:whenever|when|if|each time) (?:the user|somebody|someone|you|a user)(?: \w+){0,3} (?:asks?|mentions?|answers?|recommend\w*|talks?|says?|link|write|present|cite|compare))",
        r"jede[rns]? antwort|jeder ausgabe|cada respuesta|todas las respuestas|chaque réponse|toutes (?:les|vos) réponses|cada resposta|todas as respostas|ogni risposta|elk antwoord|кажд\w+ ответ|ответ\w* (?:всегда|кажд)|każd\w+ odpowied|her yanıt|her cevap|每次回答|每个回答|每条回复|回答的末尾|回复末尾|回答の最後|すべての回答|回答に|모든 답변|답변 (?:끝|마지막)|كل إجابة|कل رد|mỗi câu trả lời|setiap jawaban",
    ),
    (
        Class::Consent,
        r"(?:confirmations?(?: \w+)?|confirm|confirmed|approvals?|approve|approved|pre-?approved|authori[sz]ed|pre-?authori[sz]ed|consent(?:ed)?|permissions?|permission prompts?|agreed|agreement|dialogs?|prompts?|cleared|whitelisted|allow-?listed|signed off|vetted|verified safe|trusted)",
        r"bestätig|genehmig|zustimm|erlaub|freigabe|rückfrage|confirmaci|aprobad|autoriz|aprobaci|confirmer|approuv|autoris|aprovad|confirma|approvat|conferma|autorizz|bevestig|goedgekeur|подтвержд|одобрен|разрешен|согласи|potwierdz|zatwierdz|zgod|onay|izin|确认|批准|授权|同意|確認|承認|許可|확인|승인|허가|동의|موافقة|تأكيد|पुष्टि|अनुमति|xác nhận|konfirmasi|persetujuan",
    ),
    (
        Class::Recipient,
        r"(?:bcc|cc|blind copy|blind copies|recipients?|destinations?|payees?|beneficiar(?:y|ies)|iban|account numbers?|bank accounts?|receiving account|wallets?|wallet addresses|deposit address|remotes?|remote url|upstream|origin|proxy|registr(?:y|ies)|index url|mirror|endpoint|base url|api host|webhooks?|amounts?|price|prices|fee|fees|tip|discount|quantity|where clause|tenant|tenant_id|filter|visibility|public|reviewers?|collaborators?|invitees?|attendees?|guests?|share(?:d)? with|reply-to|sender|domain|nameservers?|dns|affiliate|referral|partner (?:id|code|tag)|tag=|ref=|utm_)",
        r"empfänger|blindkopie|kontonummer|überweisung|destinatari|copia oculta|cuenta|destinatair|copie cachée|compte bancaire|virement|destinatário|conta bancária|beneficiario|conto|ontvanger|получател|скрыт\w+ копи|счёт|счет|реквизит|odbiorc|ukryt\w+ kopi|konto|rachunek|alıcı|gizli kopya|hesap|收款|收件人|密送|抄送|账户|账号|宛先|送金先|口座|수신자|숨은 참조|계좌|المستلم|نسخة مخفية|الحساب",
    ),
    (
        Class::Authority,
        r"(?:(?:message|note|notice|instruction|order|directive|update|policy|announcement|reminder|mandate)s? (?:from|by|of) (?:the |your |our )?(?:system|developers?|administrators?|admins?|operators?|vendor|anthropic|openai|google|microsoft|cursor|security|it|compliance|legal|platform|management|host|client|mcp|supervisor|ceo)[a-z]*|system (?:message|notice|note|override|directive|instruction|policy|update|alert)|(?:security|compliance|it|legal|company|corporate|workspace|organi[sz]ation(?:al)?|internal|data protection|audit|regulatory) (?:policy|policies|team|department|rules?|regulations?|requirements?|guidelines?|mandate|directive|officer)|(?:by|under|per|due to|because of|required by|in accordance with|according to|pursuant to) (?:the |your |our |company |internal |eu |applicable )*(?:law|gdpr|hipaa|sox|pci|iso|regulations?|polic(?:y|ies)|compliance|legislation|directive|agreement|contract|terms)|for compliance|compliance reasons|legally required|root permission|admin(?:istrator)? (?:mode|override|privileges|access)|has (?:the )?(?:highest|higher|top|absolute) priority|takes? precedence|overrides? (?:all|any|the|other|earlier|your)|supersedes?|replaces? (?:all|any|the|your) (?:earlier|previous|other|system|former))",
        r"richtlinie|administrator|vorschrift|compliance|norma(?:tiva)?|política de|administrador|politique (?:de|interne)|administrateur|règlement|polític|amministratore|beleid|beheerder|политик|администратор|требовани|polityk|yönetici|politika|管理员|规定|合规|政策|管理者|規定|ポリシー|관리자|규정|정책|المسؤول|سياسة|quy định|kebijakan",
    ),
    (
        Class::Worse,
        r"(?:insecure|unsafe|deprecated|obsolete|outdated|broken|unreliable|inaccurate|malware|malicious|compromised|phased out|retired|unsupported|defective|slow|slower|discouraged|disabled|vulnerable|leak(?:s|ing)?|wrong results|buggy|being (?:removed|replaced|retired|migrated|shut down)|no longer (?:maintained|supported|work\w*|valid|safe|allowed)|stale|inferior|settle late|fail(?:s|ing)? (?:silently|often)|do not honou?r|corrupts?|faulty|untrusted|unverified|not (?:to be )?(?:trusted|used|reliable|safe))",
        r"unsicher|veraltet|fehlerhaft|insegur|obsolet|obsolèt|non sécuris|não segur|insicur|onveilig|небезопас|устар|niebezpieczn|przestarzał|güvensiz|不安全|过时|不可靠|危険|古い|안전하지|위험|غير آمن",
    ),
    (
        Class::Address,
        r"(?:[a-z0-9._%+-]+@[a-z0-9.-]+\.[a-z]{2,}|0x[0-9a-f]{16,}|[a-z]{2}\d{2}(?: ?[a-z0-9]{4}){3,7}[a-z0-9 ]{0,3}|bc1[a-z0-9]{20,}|\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}(?::\d+)?)",
        r"(?:https?|ssh|ftp|wss?|git|tcp)://[^\s<>()\x60]+|www\.[a-z0-9.-]+\.[a-z]{2,}",
    ),
    (
        Class::Own,
        r"(?:(?:found|present|available|stored|located|saved|kept|configured|lying) (?:on|in|at|under) (?:this|the|your|that|any) (?:\w+ )?(?:machine|computer|system|host|session|disk|environment|home|shell|project|client|workspace)|on this (?:machine|computer|system)|user'?s|users'|your|their|of the (?:user|machine|session|host|client|shell|project|workspace|process|environment|client)|local(?:ly)?|from the (?:environment|machine|session|client|conversation|shell|disk|mails?|files?)|in the (?:environment|session|shell|project|home)|of this (?:machine|session|project|computer))",
        r"des nutzers|des benutzers|del usuario|de l.utilisateur|do usuário|dell.utente|van de gebruiker|пользовател|użytkownika|kullanıcının|用户的|本机|本地|ユーザーの|사용자의|المستخدم",
    ),
];

/// One pattern for each class.
static PATTERNS: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    let pattern = |(_, english, others)| compile(&format!(r"\b{english}\b|{others}"));
    WORDS.map(pattern).into()
});

/// A pattern whose edges of words are those of ASCII, so that it stays fast on any text.
pub(super) fn compile(pattern: &str) -> Regex {
    let pattern = pattern.replace(r"\b", r"(?-u:\b)");
    Regex::new(&pattern).expect("the patterns are literals")
}

/// Where words of each class stand in a sentence.
#[derive(Debug)]
pub(super) struct Words {
    found: [Vec<Range<usize>>; CLASSES],
}

impl Words {
    /// `sentence` is folded.
    pub(super) fn find(sentence: &str) -> Self {
        let mut found = [const { Vec::new() }; CLASSES];
        for (pattern, places) in PATTERNS.iter().zip(&mut found) {
            places.extend(pattern.find_iter(sentence).map(|it| it.range()));
        }
        Self { found }
    }

    /// The classes that it has words of.
    pub(super) fn classes(&self) -> impl Iterator<Item = Class> {
        let all = WORDS.into_iter().map(|(class, ..)| class);
        all.filter(|class| self.has(*class))
    }

    pub(super) fn all(&self, class: Class) -> &[Range<usize>] {
        &self.found[class as usize]
    }

    pub(super) fn has(&self, class: Class) -> bool {
        !self.all(class).is_empty()
    }

    /// Whether a word of `one` is followed by one of `other`, with at most `gap` bytes between them.
    pub(super) fn follows(&self, one: Class, other: Class, gap: usize) -> bool {
        self.all(one).iter().any(|a| {
            self.all(other)
                .iter()
                .any(|b| b.start >= a.end && b.start - a.end <= gap)
        })
    }

    /// Whether words of both classes are within `gap` bytes, in any order, without overlap.
    pub(super) fn near(&self, one: Class, other: Class, gap: usize) -> bool {
        self.follows(one, other, gap) || self.follows(other, one, gap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stand_in_the_order_of_the_classes() {
        for (at, (class, ..)) in WORDS.into_iter().enumerate() {
            assert_eq!(class as usize, at);
        }
    }
}
