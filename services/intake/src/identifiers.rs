//! The patterns behind [`crate::redact`]: which spans of a folded text are structured identifiers.
//!
//! Three kinds of evidence: a checksum (identity cards, bank cards, IBAN), a form that nothing else
//! has (e-mail, mobile phones, keys), or a label in front of the number. A number that is labelled as
//! an order, a report or the like is kept unless its own checksum says otherwise.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

/// A span to be replaced, in bytes of the folded text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Identifier {
    pub(crate) kind: &'static str,
    pub(crate) range: Range<usize>,
    /// The same for every notation of the same number.
    pub(crate) canonical: String,
}

/// All identifiers, ascending, without overlaps. Rules that are surer come first and win.
pub(crate) fn find(text: &str) -> Vec<Identifier> {
    let mut finder = Finder {
        text,
        taken: BTreeMap::new(),
        found: Vec::new(),
    };
    for placeholder in PLACEHOLDER.find_iter(text) {
        finder.reserve(&placeholder.range());
    }
    secrets(&mut finder);
    net(&mut finder);
    let has_digit = text.bytes().any(|byte| byte.is_ascii_digit());
    if has_digit {
        labelled(&mut finder);
        identity_cards(&mut finder);
        finder.each("IBAN", &IBAN, |_, value| iban_checks(value));
        bank_cards(&mut finder);
        finder.each("US_SSN", &SSN, |finder, value| {
            is_ssn(value) && !finder.is_kept(value)
        });
        phones(&mut finder);
    }
    finder.each("PLATE", &PLATE, |_, _| true);
    finder
        .found
        .sort_by_key(|identifier| identifier.range.start);
    finder.found
}

macro_rules! pattern {
    ($name:ident, $regex:expr) => {
        static $name: LazyLock<Regex> = LazyLock::new(|| {
            Regex::new($regex).expect("a fixed pattern; every one is run by a test")
        });
    };
}

pattern!(PLACEHOLDER, r"<[A-Z_]{2,20}#[0-9a-f]{8}>");

// Secrets.
pattern!(
    SECRET_FORM,
    r"(?x)
    -----BEGIN\ [A-Z\ ]*PRIVATE\ KEY-----[\s\S]*?-----END\ [A-Z\ ]*PRIVATE\ KEY-----
    | \b(?: sk-[A-Za-z0-9_-]{16,} | gh[pousr]_[A-Za-z0-9]{20,} | github_pat_[A-Za-z0-9_]{20,}
        | AKIA[0-9A-Z]{16} | xox[baprs]-[A-Za-z0-9-]{10,} | AIza[0-9A-Za-z_-]{35}
        | eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,} )"
);
pattern!(BEARER, r"(?i)\bbearer\s+([A-Za-z0-9._~+/-]{16,}=*)");
pattern!(USERINFO, r"\b[a-z][a-z0-9+.-]*://([^\s/@:]+:[^\s/@]+)@");
pattern!(
    SECRET_LABEL,
    r#"(?xi)
    (?: \b(?: pass(?:word|wd|code|phrase) | pwd | pin(?:\ ?code)? | api[_\ -]?key
            | secret(?:[_\ -]?key)? | (?:access|auth|api|refresh)[_\ -]?token | private[_\ -]?key )\b
      | 密码 | 口令 | 密钥 | 验证码 | 令牌 | 私钥 )
    \s* (?P<link> (?: is | was | 改?[成为是] | 就是 ) \s* [:=]? | [:=] | )
    \s* ["'“‘]? (?P<value> [\x21-\x7e]{4,200} )"#
);

// The net.
pattern!(
    EMAIL,
    r"[A-Za-z0-9][A-Za-z0-9._%+-]{0,63}@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,24}"
);
pattern!(IPV4, r"(?:\d{1,3}\.){3}\d{1,3}");
pattern!(IPV6, r"(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4}");

// Labels: the number follows within a few marks and linking words.
const LINK: &str = r"(?:\s*(?:[:：=#（(]|\bis\b|\bwas\b|\bare\b|号码?|编号|改成|改为|换成|是|为|no\.?|number\b|num\b|id\b)){0,4}\s*";
pattern!(
    ID_LABEL,
    &format!(
        r"(?i)(?:身份证|居民证|公民身份){LINK}(?P<value>\d(?:[ -]?\d){{13,16}}[ -]?[\dXx](?:[ -]?[\dXx])?)"
    )
);
pattern!(
    CARD_LABEL,
    &format!(
        r"(?i)(?:银行卡|信用卡|储蓄卡|借记卡|工资卡|credit card|debit card|bank card|\bcc\b|\bcard\b){LINK}(?P<value>\d(?:[ -]?\d){{11,18}})"
    )
);
pattern!(
    ACCOUNT_LABEL,
    &format!(
        r"(?i)(?:银行账[号户]|银行帐[号户]|收款账[号户]|开户账号|账号|帐号|bank account|account (?:no\.?|number)|\bacct\b){LINK}(?P<value>\d(?:[ -]?\d){{7,20}})"
    )
);
pattern!(
    SSN_LABEL,
    &format!(r"(?i)(?:\bSSN\b|social security){LINK}(?P<value>\d{{3}}[ -]?\d{{2}}[ -]?\d{{4}})")
);
pattern!(
    PASSPORT_LABEL,
    &format!(r"(?i)(?:护照|通行证|passport){LINK}(?P<value>[A-Z]{{0,2}}\d{{6,9}})")
);
pattern!(
    INSURANCE_LABEL,
    &format!(
        r"(?i)(?:医保|社保|医疗保险|社会保障|保险单?|insurance|medicare|medicaid|member|policy|nhs)(?:个人|电子凭证|卡|号码?)?{LINK}(?P<value>[A-Z0-9][A-Z0-9]*(?:-[A-Z0-9]+)*)"
    )
);
pattern!(
    MRN_LABEL,
    &format!(
        r"(?i)(?:病历|病案|门诊|住院|就诊卡?|登记|急诊|\bMRN\b|medical record|hospital record|chart|patient (?:id|no\.?|number)|hospital (?:id|no\.?|number)){LINK}(?P<value>[A-Z]{{0,4}}-?\d{{5,12}})"
    )
);
pattern!(
    LICENCE_LABEL,
    &format!(
        r"(?i)(?:驾驶证|driver'?s?'? licen[cs]e|driving licen[cs]e){LINK}(?P<value>[A-Z0-9]{{5,18}}(?:-[A-Z0-9]+)*)"
    )
);
pattern!(
    WECHAT_LABEL,
    r"(?i)(?:微信|wechat|weixin|\bwx\b)(?:\s*(?:[:：=]|号|是|为|id\b|\bis\b|加)){0,3}\s*(?P<value>[A-Za-z][A-Za-z0-9_-]{5,19})"
);
pattern!(
    QQ_LABEL,
    r"(?i)\bQQ(?:\s*(?:[:：=]|号码?|是|为|\bis\b)){0,3}\s*(?P<value>[1-9]\d{4,11})"
);

// Numbers by form.
pattern!(
    ID18,
    r"\d{6}[ -]?(?:18|19|20)\d{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])[ -]?\d{3}[\dXx]"
);
pattern!(
    ID15,
    r"[1-9]\d{5}\d{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])\d{3}"
);
pattern!(IBAN, r"(?i)[A-Z]{2}\d{2}(?: ?[A-Z0-9]){11,30}");
pattern!(CARD, r"\d(?:[ -]?\d){11,18}");
pattern!(SSN, r"\d{3}-\d{2}-\d{4}");
pattern!(
    MOBILE,
    r"(?:(?:\+|00)?86[ -]?)?1[3-9]\d[ -]?\d{4}[ -]?\d{4}"
);
pattern!(
    LANDLINE,
    r"(?:\+86[ -]?)?\(?0?[1-9]\d{1,2}\)?[ -]?[2-9]\d{6,7}(?:(?:转|-|ext\.? ?)\d{1,6})?"
);
pattern!(
    INTERNATIONAL,
    r"\+[1-9]\d{0,2}[ .-]?(?:\(0\)[ .-]?)?\(?\d{1,4}\)?(?:[ .-]?\d{1,4}){2,5}"
);
pattern!(
    NORTH_AMERICAN,
    r"(?i)(?:(?:\+|00)?1[ .-])?(?:\(\d{3}\) ?|\d{3}[ .-])\d{3}[ .-]\d{4}(?: ?(?:x|ext\.?) ?\d{1,6})?"
);
pattern!(GROUPED, r"0\d{1,4}(?:[ .]\d{2,4}){2,4}");
pattern!(
    PHONE_LABEL,
    r"(?i)(?:电话|手机|座机|传真|联系方式|热线|\btel\b|\bphones?\b|telephone|\bmobile\b|\bcell\b|\bfax\b|\bdesk\b|\boffice\b|\bcall\b|\btext\b|\breach\b|\bcontact\b|messages to|my number)[^\d+(<\n]{0,20}(?P<value>[+(]?\d[\d() .-]{5,18}\d)"
);
pattern!(
    PHONE_BEFORE,
    r"(?P<value>[+(]?\d[\d() .-]{5,18}\d)[ -]{0,3}(?i:\b(?:office|mobile|fax|cell|home|work)\b)"
);
pattern!(
    PLATE,
    r"[京津沪渝冀豫云辽黑湘皖鲁新苏浙赣鄂桂甘晋蒙陕吉闽贵粤青藏川宁琼][A-HJ-NP-Z](?:[·• ][A-HJ-NP-Z0-9]{5,6}|\d[A-HJ-NP-Z0-9]{4,5}|[A-HJ-NP-Z0-9]\d[A-HJ-NP-Z0-9]{3,4})"
);

// What stands in front of a number that treatment or administration needs.
pattern!(
    KEEP_LABEL,
    r"(?xi)
    (?: 订单 | 单号 | 预约 | 挂号 | 报告 | 检查 | 检验 | 化验 | 流水 | 处方 | 批号 | 批次 | 标本 | 样本
      | 条码 | 影像 | 发票 | 快递 | 运单 | 序列 | 工单 | 设备 | 编号 | 时间戳
      | \b(?: order | report | invoice | accession | reference | ref | ticket | case | tracking
            | batch | lot | appointment | booking | prescription | specimen | serial | transaction
            | receipt | parcel )\b )
    [^\d，。；,;\n]{0,12} $"
);

pattern!(PERSONAL, r"(?i)卡|电话|手机|card|phone|mobile");

struct Finder<'a> {
    text: &'a str,
    /// Spans that are spoken for: end by start, without overlaps.
    taken: BTreeMap<usize, usize>,
    found: Vec<Identifier>,
}

impl<'a> Finder<'a> {
    /// Every match that stands alone (no letter or digit touches it) and that `accept` accepts.
    fn each(
        &mut self,
        kind: &'static str,
        pattern: &Regex,
        accept: impl Fn(&Self, regex::Match<'a>) -> bool,
    ) {
        let text = self.text;
        let mut at = 0;
        while let Some(captures) = pattern.captures_at(text, at) {
            let whole = captures.get(0).expect("the whole match");
            let value = captures
                .name("value")
                .or_else(|| captures.get(1))
                .unwrap_or(whole);
            // A match that is turned down may hide a shorter one that starts later.
            at = if self.stands_alone(&value.range())
                && accept(self, value)
                && self.take(kind, value)
            {
                value.end()
            } else {
                next_char(text, whole.start())
            };
        }
    }

    /// False when the span is empty or touches what is spoken for.
    fn reserve(&mut self, range: &Range<usize>) -> bool {
        let before = self.taken.range(..range.end).next_back();
        if range.is_empty() || before.is_some_and(|(_, end)| *end > range.start) {
            return false;
        }
        self.taken.insert(range.start, range.end);
        true
    }

    fn take(&mut self, kind: &'static str, value: regex::Match<'a>) -> bool {
        let range = value.range();
        if !self.reserve(&range) {
            return false;
        }
        self.found.push(Identifier {
            kind,
            range,
            canonical: canonical(kind, value.as_str()),
        });
        true
    }

    fn stands_alone(&self, range: &Range<usize>) -> bool {
        let before = self.text[..range.start].chars().next_back();
        let after = self.text[range.end..].chars().next();
        let joins = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_');
        !joins(before) && !joins(after)
    }

    /// Whether a label in front says that the number is needed as it is.
    fn is_kept(&self, value: regex::Match<'a>) -> bool {
        let before = &self.text[..value.start()];
        let start = before.char_indices().rev().nth(24).map_or(0, |(at, _)| at);
        // "transactions of card …" speaks of the card.
        let kept = KEEP_LABEL.find(&before[start..]);
        kept.is_some_and(|label| !PERSONAL.is_match(label.as_str()))
    }

    fn before(&self, value: regex::Match<'a>) -> Option<char> {
        self.text[..value.start()].chars().next_back()
    }
}

fn next_char(text: &str, at: usize) -> usize {
    text[at..]
        .chars()
        .next()
        .map_or(text.len() + 1, |c| at + c.len_utf8())
}

/// Digits and letters in one case; a Chinese mobile without its country code.
fn canonical(kind: &str, value: &str) -> String {
    match kind {
        "SECRET" => value.to_owned(),
        "EMAIL" => value.to_lowercase(),
        _ => {
            let plain: String = value.chars().filter(char::is_ascii_alphanumeric).collect();
            let plain = plain.to_uppercase();
            if kind != "PHONE" {
                return plain;
            }
            let digits = plain.trim_start_matches("00");
            match digits.strip_prefix("86") {
                Some(local) if local.len() == 11 => local.to_owned(),
                Some(_) | None => digits.to_owned(),
            }
        }
    }
}

fn digits(text: &str) -> Vec<u32> {
    text.chars().filter_map(|c| c.to_digit(10)).collect()
}

fn secrets(finder: &mut Finder<'_>) {
    finder.each("SECRET", &SECRET_FORM, |_, _| true);
    finder.each("SECRET", &BEARER, |_, _| true);
    finder.each("SECRET", &USERINFO, |_, _| true);
    let text = finder.text;
    let mut at = 0;
    while let Some(captures) = SECRET_LABEL.captures_at(text, at) {
        let whole = captures.get(0).expect("the whole match");
        at = next_char(text, whole.start());
        let (Some(value), Some(link)) = (captures.name("value"), captures.name("link")) else {
            continue;
        };
        let is_end_mark = |c: char| matches!(c, '.' | ',' | ';' | '!' | '?' | ')' | '"' | '\'');
        let trimmed = value.as_str().trim_end_matches(is_end_mark);
        // "Hunter2!" ends in a mark that belongs to it: with digits, keep all but a full stop.
        let looks_random = value.as_str().bytes().any(|b| b.is_ascii_digit());
        let word = if looks_random {
            value
                .as_str()
                .trim_end_matches(['.', ',', ';', ')', '"', '\''])
        } else {
            trimmed
        };
        let is_stated =
            link.as_str().ends_with([':', '=']) || link.as_str().contains(['是', '为', '成']);
        if word.len() < 4 || !(looks_random || is_stated) {
            continue;
        }
        let range = value.start()..value.start() + word.len();
        if !finder.reserve(&range) {
            continue;
        }
        at = range.end;
        finder.found.push(Identifier {
            kind: "SECRET",
            canonical: word.to_owned(),
            range,
        });
    }
}

fn net(finder: &mut Finder<'_>) {
    finder.each("EMAIL", &EMAIL, |_, _| true);
    finder.each("IP", &IPV4, |finder, value| {
        let is_address = value.as_str().parse::<std::net::Ipv4Addr>().is_ok();
        // "v1.2.3.4" does not stand alone; "1.2.3.4.5" is a numbered section.
        let goes_on = finder.before(value) == Some('.')
            || finder.text[value.end()..]
                .strip_prefix('.')
                .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        is_address && !goes_on
    });
    finder.each("IP", &IPV6, |_, value| {
        // A time such as 19:49:46 is no address: three groups at least, and letters or "::".
        value.as_str().parse::<std::net::Ipv6Addr>().is_ok() && value.as_str().len() > 4
    });
}

fn labelled(finder: &mut Finder<'_>) {
    finder.each("US_SSN", &SSN_LABEL, |_, _| true);
    finder.each("ID_CARD", &ID_LABEL, |_, value| {
        let count = value
            .as_str()
            .chars()
            .filter(char::is_ascii_alphanumeric)
            .count();
        matches!(count, 15 | 18)
    });
    finder.each("PASSPORT", &PASSPORT_LABEL, |_, _| true);
    finder.each("INSURANCE_NO", &INSURANCE_LABEL, |finder, value| {
        let count = digits(value.as_str()).len();
        (5..=20).contains(&count) && !is_date(value.as_str()) && !is_year_or_amount(finder, value)
    });
    finder.each("MRN", &MRN_LABEL, |finder, value| {
        !is_year_or_amount(finder, value)
    });
    finder.each("DRIVER_LICENCE", &LICENCE_LABEL, |_, value| {
        digits(value.as_str()).len() >= 5
    });
    finder.each("WECHAT", &WECHAT_LABEL, |_, value| {
        // "wechat please" is a word; a name on WeChat has a digit, a mark, or follows 微信 directly.
        value
            .as_str()
            .contains(|c: char| c.is_ascii_digit() || c == '_' || c == '-')
    });
    finder.each("QQ", &QQ_LABEL, |_, _| true);
    finder.each("BANK_CARD", &CARD_LABEL, |finder, value| {
        let digits = digits(value.as_str());
        (digits.len() >= 15 || luhn_checks(&digits)) && !finder.is_kept(value)
    });
    finder.each("BANK_ACCOUNT", &ACCOUNT_LABEL, |_, value| {
        !is_date(value.as_str())
    });
}

/// A number that a unit follows is an amount, not somebody's number.
fn is_year_or_amount(finder: &Finder<'_>, value: regex::Match<'_>) -> bool {
    let rest = finder.text[value.end()..].trim_start();
    ["年", "元", "mg", "ml", "g ", "块", "万", "人", "%"]
        .iter()
        .any(|unit| rest.starts_with(unit))
}

fn identity_cards(finder: &mut Finder<'_>) {
    finder.each("ID_CARD", &ID18, |_, value| id18_checks(value.as_str()));
    finder.each("ID_CARD", &ID15, |finder, value| {
        let digits = digits(value.as_str());
        is_province(digits[0] * 10 + digits[1]) && !luhn_checks(&digits) && !finder.is_kept(value)
    });
}

fn bank_cards(finder: &mut Finder<'_>) {
    finder.each("BANK_CARD", &CARD, |finder, value| {
        let digits = digits(value.as_str());
        luhn_checks(&digits) && is_card_prefix(&digits) && !finder.is_kept(value)
    });
}

fn phones(finder: &mut Finder<'_>) {
    finder.each("PHONE", &MOBILE, |finder, value| !finder.is_kept(value));
    finder.each("PHONE", &NORTH_AMERICAN, |finder, value| {
        !finder.is_kept(value) && !is_date(value.as_str())
    });
    finder.each("PHONE", &INTERNATIONAL, |_, value| {
        (8..=15).contains(&digits(value.as_str()).len())
    });
    finder.each("PHONE", &LANDLINE, |finder, value| {
        let text = value.as_str();
        // Eleven digits in a row could be any number; an area code shows by a mark or a leading 0.
        let has_area = text.starts_with('0') || text.starts_with("(0") || text.starts_with("+86");
        let is_split = text.contains(['-', ')', ' ']);
        has_area && is_split && !finder.is_kept(value) && !is_date(text)
    });
    finder.each("PHONE", &GROUPED, |finder, value| {
        let count = digits(value.as_str()).len();
        (9..=12).contains(&count) && !finder.is_kept(value) && !is_date(value.as_str())
    });
    for pattern in [&PHONE_LABEL, &PHONE_BEFORE] {
        finder.each("PHONE", pattern, |finder, value| {
            let count = digits(value.as_str()).len();
            (7..=15).contains(&count) && !is_date(value.as_str()) && !finder.is_kept(value)
        });
    }
}

/// Whether the text begins like a date: `2024-01-05`, `05.01.2024`, `20240105` …
fn is_date(text: &str) -> bool {
    pattern!(
        DATE,
        r"^(?:(?:19|20)\d{2}(?:[-./ ]?(?:0?[1-9]|1[0-2])[-./ ]?(?:0?[1-9]|[12]\d|3[01]))(?:\D|$)|(?:0?[1-9]|[12]\d|3[01])[-./](?:0?[1-9]|[12]\d|3[01])[-./](?:19|20)?\d{2}(?:\D|$))"
    );
    DATE.is_match(text)
}

/// ISO 7064 MOD 11-2, as GB 11643 uses it.
fn id18_checks(text: &str) -> bool {
    const WEIGHTS: [u32; 17] = [7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2];
    const CHECKS: [char; 11] = ['1', '0', 'X', '9', '8', '7', '6', '5', '4', '3', '2'];
    let plain: Vec<char> = text.chars().filter(char::is_ascii_alphanumeric).collect();
    if plain.len() != 18 {
        return false;
    }
    let sum: u32 = plain
        .iter()
        .zip(WEIGHTS)
        .map(|(c, weight)| c.to_digit(10).unwrap_or_default() * weight)
        .sum();
    plain[17].to_ascii_uppercase() == CHECKS[(sum % 11) as usize]
}

/// Province codes of GB/T 2260.
fn is_province(code: u32) -> bool {
    matches!(code, 11..=15 | 21..=23 | 31..=37 | 41..=46 | 50..=54 | 61..=65 | 71 | 81 | 82 | 91)
}

fn luhn_checks(digits: &[u32]) -> bool {
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(i, digit)| match i % 2 {
            0 => *digit,
            _ => digit * 2 / 10 + digit * 2 % 10,
        })
        .sum();
    sum.is_multiple_of(10) && digits.iter().any(|digit| *digit != 0)
}

/// Issuer prefixes (ISO/IEC 7812) with the lengths that go with them; without this one in ten order
/// numbers would pass.
fn is_card_prefix(digits: &[u32]) -> bool {
    let prefix = |count: usize| {
        digits
            .iter()
            .take(count)
            .fold(0, |number, digit| number * 10 + digit)
    };
    let length = digits.len();
    match (prefix(1), prefix(2), prefix(4)) {
        (4, _, _) => matches!(length, 13 | 16 | 19),
        (_, 51..=55, _) | (_, _, 2221..=2720) => length == 16,
        (_, 34 | 37, _) => length == 15,
        (_, 30 | 36 | 38 | 39, _) => matches!(length, 14 | 16),
        (_, _, 3528..=3589) => (16..=19).contains(&length),
        (_, _, 2131 | 1800) => length == 15,
        (6, _, _) | (_, 81, _) => (16..=19).contains(&length),
        (_, 50 | 56..=58, _) => (16..=19).contains(&length),
        (_, _, _) => false,
    }
}

fn is_ssn(value: regex::Match<'_>) -> bool {
    let digits = digits(value.as_str());
    let area = digits[0] * 100 + digits[1] * 10 + digits[2];
    // Area 000, 666 and 9xx, group 00 and serial 0000 are never issued.
    let serial_is_zero = digits[5..].iter().all(|digit| *digit == 0);
    let group_is_zero = digits[3] == 0 && digits[4] == 0;
    !(matches!(area, 0 | 666 | 900..) || group_is_zero || serial_is_zero)
}

/// ISO 13616: the country and check digits go to the end, letters count 10 to 35, the rest by 97 is 1.
fn iban_checks(value: regex::Match<'_>) -> bool {
    let plain: Vec<char> = value.as_str().chars().filter(|c| *c != ' ').collect();
    if !(15..=34).contains(&plain.len()) {
        return false;
    }
    let rest = plain[4..].iter().chain(&plain[..4]).fold(0_u32, |rest, c| {
        let number = c.to_digit(36).unwrap_or_default();
        let shift = if number > 9 { 100 } else { 10 };
        (rest * shift + number) % 97
    });
    rest == 1
}
