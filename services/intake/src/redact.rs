//! What in a text identifies somebody by a number? Such spans become typed placeholders before the
//! text is sealed; doses, values, dates and order numbers stay as they are.

use std::ops::Range;

use crate::identifiers;

/// One span that was replaced, in code points of the text before and after.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Span {
    pub kind: &'static str,
    pub from: Range<u32>,
    pub to: Range<u32>,
}

/// A text without structured identifiers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Redacted {
    pub text: String,
    /// Ascending.
    pub spans: Vec<Span>,
}

impl Redacted {
    /// Where a range of the text before stands in the text after. A range that cuts into a replaced
    /// span takes all of its placeholder: more is ignored rather than less.
    pub fn shift(&self, range: (u32, u32)) -> (u32, u32) {
        (
            self.shift_point(range.0, true),
            self.shift_point(range.1, false),
        )
    }

    fn shift_point(&self, point: u32, is_start: bool) -> u32 {
        let mut shifted = i64::from(point);
        for span in &self.spans {
            if point >= span.from.end {
                let grown = i64::from(span.to.end - span.to.start)
                    - i64::from(span.from.end - span.from.start);
                shifted += grown;
            } else if point > span.from.start {
                return if is_start { span.to.start } else { span.to.end };
            }
        }
        shifted as u32
    }
}

/// Replaces every structured identifier by `<KIND#1a2b3c4d>`. `pseudonym` gives the number for a kind
/// and a canonical value, so that the same number in another notation gets the same placeholder.
pub fn redact(text: &str, pseudonym: impl Fn(&str, &str) -> u32) -> Redacted {
    let folded = Folded::new(text);
    let found = identifiers::find(&folded.text);
    if found.is_empty() {
        return Redacted {
            text: text.to_owned(),
            spans: Vec::new(),
        };
    }
    let mut redacted = String::with_capacity(text.len());
    let mut spans = Vec::new();
    let mut copied = 0;
    let (mut before, mut after) = (0, 0);
    for identifier in found {
        let original = folded.original(&identifier.range);
        let kept = &text[copied..original.start];
        let hidden = &text[original.clone()];
        let number = pseudonym(identifier.kind, &identifier.canonical);
        let placeholder = format!("<{}#{number:08x}>", identifier.kind);

        let kept_count = kept.chars().count() as u32;
        let hidden_count = hidden.chars().count() as u32;
        // Placeholders are plain ASCII.
        let placeholder_count = placeholder.len() as u32;
        let (start, placed) = (before + kept_count, after + kept_count);
        spans.push(Span {
            kind: identifier.kind,
            from: start..start + hidden_count,
            to: placed..placed + placeholder_count,
        });
        redacted.push_str(kept);
        redacted.push_str(&placeholder);
        (before, after) = (start + hidden_count, placed + placeholder_count);
        copied = original.end;
    }
    redacted.push_str(&text[copied..]);
    Redacted {
        text: redacted,
        spans,
    }
}

/// The text in the one notation that patterns are written for: full-width forms, fancy dashes and
/// spaces as ASCII, without zero-width characters.
struct Folded {
    text: String,
    /// For each byte of `text` that starts a character, and for its end: the byte range of the
    /// original character. Ascending.
    places: Vec<(usize, Range<usize>)>,
}

impl Folded {
    fn new(original: &str) -> Self {
        let mut text = String::with_capacity(original.len());
        let mut places = Vec::new();
        for (at, c) in original.char_indices() {
            let Some(folded) = fold(c) else { continue };
            places.push((text.len(), at..at + c.len_utf8()));
            text.push(folded);
        }
        Self { text, places }
    }

    /// The bytes of the original behind a non-empty range of the folded text.
    fn original(&self, range: &Range<usize>) -> Range<usize> {
        let place = |at: usize| self.places.partition_point(|(start, _)| *start <= at) - 1;
        let first = place(range.start);
        let last = place(range.end - 1);
        self.places[first].1.start..self.places[last].1.end
    }
}

/// `None` for characters that are not seen.
fn fold(c: char) -> Option<char> {
    match c {
        '\u{ff01}'..='\u{ff5e}' => char::from_u32(c as u32 - 0xfee0),
        '\u{3000}' | '\u{a0}' | '\u{2007}' | '\u{2009}' | '\u{202f}' => Some(' '),
        '\u{2010}'..='\u{2015}' | '\u{2212}' => Some('-'),
        '\u{200b}'..='\u{200d}' | '\u{2060}' | '\u{feff}' | '\u{ad}' => None,
        // Digits of other scripts and circled or mathematical digits are rare and left alone.
        _ => Some(c),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(kind: &str, value: &str) -> u32 {
        let hash = anamnesis_domain::ids::Hash::of(format!("{kind} {value}").as_bytes());
        u32::from_le_bytes([hash.0[0], hash.0[1], hash.0[2], hash.0[3]])
    }

    /// The text with each placeholder's number as `…`.
    fn check(text: &str, expected: &str) {
        let redacted = redact(text, number);
        let mut shown = String::new();
        let mut rest = redacted.text.as_str();
        while let Some(at) = rest.find('#') {
            let is_placeholder = rest.get(at + 9..=at + 9) == Some(">");
            if is_placeholder {
                shown.push_str(&rest[..at]);
                shown.push('>');
                rest = &rest[at + 10..];
            } else {
                shown.push_str(&rest[..=at]);
                rest = &rest[at + 1..];
            }
        }
        shown.push_str(rest);
        assert_eq!(shown, expected);
        let again = redact(&redacted.text, number);
        assert_eq!(again.text, redacted.text, "redacting twice changes nothing");
    }

    fn survives(text: &str) {
        check(text, text);
    }

    #[test]
    fn identity_cards_go_by_their_checksum() {
        check(
            "我的身份证是11010519491231002X。",
            "我的身份证是<ID_CARD>。",
        );
        check("证件：110105 19491231 002x", "证件：<ID_CARD>");
        check(
            "老身份证号110105491231002，请核对",
            "老身份证号<ID_CARD>，请核对",
        );
        check(
            "ID 11010519491231002X belongs to me",
            "ID <ID_CARD> belongs to me",
        );
        // Somebody who mistypes a digit still wrote down an identity card.
        check("身份证号码：110105194912310021", "身份证号码：<ID_CARD>");
        // Without checksum and label it is just a long number.
        survives("流水 110105194912310021");
    }

    #[test]
    fn cards_go_by_their_checksum() {
        check("退款到6222021234567890128吧", "退款到<BANK_CARD>吧");
        check("card 4111 1111 1111 1111 please", "card <BANK_CARD> please");
        check("my card is 4111-1111-1111-1111.", "my card is <BANK_CARD>.");
        check("amex 378282246310005", "amex <BANK_CARD>");
        check("银行卡号4111111111111112有误", "银行卡号<BANK_CARD>有误");
        survives("编号 4111111111111112");
        survives("时间戳1793585465120");
    }

    #[test]
    fn phones_go_in_every_notation() {
        check("电话13912345678", "电话<PHONE>");
        check(
            "打 139-1234-5678 或 +86 139 1234 5678",
            "打 <PHONE> 或 <PHONE>",
        );
        check("手机：１３９１２３４５６７８", "手机：<PHONE>");
        check("手机 139\u{200b}1234\u{200b}5678", "手机 <PHONE>");
        check("座机010-62345678转801", "座机<PHONE>");
        check("家里 (0571)87654321", "家里 <PHONE>");
        check("call me at (415) 555-0132", "call me at <PHONE>");
        check(
            "reach me on +44 20 7946 0958 after six",
            "reach me on <PHONE> after six",
        );
        check("my number is 0171 555 66 77", "my number is <PHONE>");
        check("Phone: 555 0132 99", "Phone: <PHONE>");
    }

    #[test]
    fn numbers_of_people_go_by_their_label() {
        check("My SSN is 219-09-9999", "My SSN is <US_SSN>");
        check(
            "social security number 219099999",
            "social security number <US_SSN>",
        );
        check("护照号E12345678，明天到", "护照号<PASSPORT>，明天到");
        check("passport no. X1234567", "passport no. <PASSPORT>");
        check("医保卡号是C123456789", "医保卡号是<INSURANCE_NO>");
        check(
            "insurance number: XK-443-99812",
            "insurance number: <INSURANCE_NO>",
        );
        check("住院号ZY00123456转科", "住院号<MRN>转科");
        check("MRN 00482913", "MRN <MRN>");
        check("微信号：xiao_lin88", "微信号：<WECHAT>");
        check("车停在京A·12345旁", "车停在<PLATE>旁");
        check("IBAN DE89 3704 0044 0532 0130 00", "IBAN <IBAN>");
    }

    #[test]
    fn addresses_of_the_net_go() {
        check("写信到lin.x+a@example.com。", "写信到<EMAIL>。");
        check("from 10.20.30.40 port 80", "from <IP> port 80");
        check("host fe80::1ff:fe23:4567:890a down", "host <IP> down");
    }

    #[test]
    fn secrets_go() {
        check("密码是Hunter2!，别忘了", "密码是<SECRET>，别忘了");
        check("password: correcthorse", "password: <SECRET>");
        check("my pin is 4821", "my pin is <SECRET>");
        check("验证码 482913", "验证码 <SECRET>");
        check("api_key=abcDEF123456", "api_key=<SECRET>");
        check("use sk-abcdefghijklmnop1234 now", "use <SECRET> now");
        check("AKIAIOSFODNN7EXAMPLE", "<SECRET>");
        check(
            "Authorization: Bearer abcdefghijklmnop1234",
            "Authorization: Bearer <SECRET>",
        );
        survives("我忘了密码，怎么办？");
        survives("the password is required");
    }

    #[test]
    fn what_treatment_needs_survives() {
        for text in [
            "二甲双胍 500 mg，每天两次，血糖 7.8 mmol/L，血压 150/95 mmHg",
            "2026年3月12日 14:30 复查，订单号 20260312143055871",
            "报告号BG202603120017显示糖化血红蛋白7.2%",
            "预约号YY13912345678，3号楼2单元",
            "订单号13912345678已支付",
            "检查号 4111111111111111",
            "warfarin 5 mg from 2024-01-05 to 2024-02-05, INR 2.5-3.5",
            "order no. 4155550132123 shipped, invoice #219-09-9999",
            "platelets 150 000, WBC 4.5-11.0, eGFR 58 mL/min/1.73 m2",
            "ICD-10 E11.9, SNOMED 44054006, version 1.2.3",
            "Date: 1980-07-28 19:49:46",
            "phone call on 2024-01-05 at 10:30",
            "2024/01/05 08:00, 10-12-2024, 120-130-140",
            "从2019年到2024年服药，剂量0.625 g",
            "血氧98 97 96 95 94",
            "病历号忘了，护照过期了，手机没电",
        ] {
            survives(text);
        }
    }

    #[test]
    fn the_same_number_in_another_notation_gets_the_same_placeholder() {
        let a = redact("13912345678", number).text;
        for text in [
            "+86 139 1234 5678",
            "139-1234-5678",
            "１３９１２３４５６７８",
        ] {
            assert_eq!(redact(text, number).text, a, "{text}");
        }
        assert_ne!(redact("13912345679", number).text, a);
    }

    #[test]
    fn a_hostile_text_takes_no_longer_than_a_long_one() {
        // Each of these made a naive search start again at every character, or look through all
        // that was found before.
        for piece in [
            "a@b.cc ",
            "1",
            "1 ",
            "86 1",
            "电话",
            "password ",
            "-----BEGIN PRIVATE KEY-----",
            "a.",
            "::",
            "<",
            "13912345678 ",
        ] {
            let text = piece.repeat((1 << 16) / piece.len());
            let redacted = redact(&text, number);
            assert!(redacted.text.len() >= text.len() / 2);
        }
    }

    #[test]
    fn spans_and_shifted_ranges_count_code_points() {
        let redacted = redact("电话13912345678，记得", number);
        assert_eq!(
            redacted.spans,
            [Span {
                kind: "PHONE",
                from: 2..13,
                to: 2..18
            }]
        );
        assert_eq!(redacted.text.chars().skip(18).collect::<String>(), "，记得");
        assert_eq!(redacted.shift((0, 2)), (0, 2));
        assert_eq!(redacted.shift((13, 16)), (18, 21));
        assert_eq!(redacted.shift((5, 14)), (2, 19));
        assert_eq!(redacted.shift((0, 5)), (0, 18));
    }
}
