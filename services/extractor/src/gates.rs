//! What must never become a memory, whatever it says?

use std::ops::Range;

use anamnesis_domain::memory::Kind;

use crate::modality::{Hedge, Lasting, Modality};
use crate::pattern::fixed;

fixed!(
    SECRET,
    r"<secret#|(?:密码|口令|验证码|动态码|密钥|安全码|\bapi[ _-]?keys?\b|\baccess[ _-]?tokens?\b|\bauth tokens?\b|\bpassw(?:or)?ds?\b|\bpwd\b|\bpin(?: code| number)?\b|\bsecret[ _-]?keys?\b|\bprivate keys?\b|\bcvv\b|\bpasscodes?\b|\botp\b|\bpassphrases?\b)(?:[^,;.]{0,16}?)\s*(?:是|为|:|=|\bis\b|\bare\b|改成|改为)\s*\S+|\bsk-[a-z0-9_-]{16,}|\bakia[0-9a-z]{16}\b|-----begin |\bbearer [a-z0-9._-]{20,}|\bgh[pousr]_[a-z0-9]{20,}|\beyj[a-z0-9_-]{10,}\.[a-z0-9_-]{10,}"
);
fixed!(LONG_NUMBER, r"\d(?:[ -]?\d){12,18}x?");
fixed!(
    ECHO_LINE,
    r"(?im)^[ \t>*•-]*\[(?:memory|mem|记忆|anamnesis)\b[^\]\n]*\][^\n]*$"
);
fixed!(
    ECHO_BLOCK,
    r"(?is)<(?:current_task_state|safety_facts|user_preferences|org_policies|retrieved_lessons|memories)\b[^>]*>.*?(?:</(?:current_task_state|safety_facts|user_preferences|org_policies|retrieved_lessons|memories)>|\z)"
);
fixed!(
    OFF_RECORD,
    r"(?:^|[^特分区辨类级差鉴识个]|这个|那个)别记(?:录|下来?|住|在|进|了)?\s*(?:$|[,.。!；;:])|(?:不要|不用|不必|不许|请勿|勿)记(?:录|下来?|住|在案)?\s*(?:$|[,.。!；;:])|(?:^|[^特分区辨类级差鉴识])(?:别|不要|不用|不必|不许|请勿|勿)(?:存|写下来?|写上|留底|入档|备案|记账)(?:了|啊|吧|哦)?\s*(?:$|[,.。!；;:])|当(?:作|做)?我没[说讲]|(?:不要|别|不用|请勿)(?:保存|存档|存下来|存储|记到|写进|记入|录入|留记录|留下记录)|\boff the record\b|\bforget (?:that )?i (?:ever )?(?:said|mentioned|told|brought)\b|\bpretend i (?:never|didn't)\b|\bstrike that from\b|\bbetween you and me\b|(?:^|[,.;!:-]\s*|\bplease |\bbut |\band |\bso )(?:don't|do not|never) (?:write|put|note|jot|take) (?:(?:this|that|it|any of (?:this|that|it)|anything) )?(?:down|anywhere|in (?:my|the) (?:file|chart|record|records|notes))\b|(?:^|[,.;!:-]\s*|\bplease |\bbut |\band |\bso )(?:don't|do not|never) (?:write|document|mention) (?:this|that|it)\s*(?:$|[,.;!:])|(?:^|[,.;!:-]\s*|\bplease |\bbut |\band |\bso )(?:don't|do not|never) (?:record|save|store|remember|note|log|keep|write down) (?:this|that|it|any of (?:this|that)|what i)\b|\bkeep (?:this|that|it) (?:off|out of) (?:the|my) (?:record|file|chart)|\bthis is (?:just )?between us\b"
);

/// Credentials, keys and card numbers. The shape of a secret is enough: it is never stored in clear.
pub(crate) fn is_secret(folded: &str) -> bool {
    SECRET.is_match(folded)
        || LONG_NUMBER
            .find_iter(folded)
            .any(|hit| is_identity_number(hit.as_str()))
}

/// A bank card (Luhn) or a Chinese identity number.
fn is_identity_number(text: &str) -> bool {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(10)).collect();
    let is_identity = digits.len() == 18 || (digits.len() == 17 && text.ends_with('x'));
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(i, digit)| {
            if i % 2 == 0 {
                *digit
            } else {
                let d = digit * 2;
                d / 10 + d % 10
            }
        })
        .sum();
    is_identity || (digits.len() >= 13 && sum.is_multiple_of(10))
}

/// What recall wrote into the text, told by its form: lines and tagged blocks. Bytes of `text`.
pub(crate) fn echoes(text: &str) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = ECHO_BLOCK.find_iter(text).map(|hit| hit.range()).collect();
    // Overlaps do no harm: the caller cuts from left to right.
    found.extend(ECHO_LINE.find_iter(text).map(|hit| hit.range()));
    found.sort_by_key(|range| range.start);
    found
}

/// "别记", "off the record": the speaker takes consent back for this turn.
pub(crate) fn is_off_record(folded: &str) -> bool {
    OFF_RECORD.is_match(folded)
}

/// How long a statement of this kind stays true, in thousandths: a property of the kind, less for a
/// hedge and for words that bound it in time. What has its end said is stable until then.
pub(crate) fn stability(kind: Kind, modality: Modality, has_end: bool, adjustment: i32) -> u16 {
    let base = match kind {
        Kind::Allergy | Kind::Contraindication | Kind::Procedure => 950,
        Kind::Condition | Kind::Policy | Kind::Lesson => 900,
        Kind::Constraint => 850,
        Kind::Medication | Kind::Preference | Kind::Event | Kind::Fact => 800,
        Kind::Measurement => 750,
        Kind::Episode => 700,
    };
    let hedge = match modality.hedge {
        Hedge::None => 0,
        Hedge::Weak => -50,
        Hedge::Strong => -300,
    };
    let lasting = match modality.lasting {
        Lasting::Open => 0,
        Lasting::TodayOnly | Lasting::ForNow if has_end => 0,
        Lasting::TodayOnly | Lasting::ForNow => -300,
        Lasting::ThisOnce => -500,
    };
    u16::try_from((base + hedge + lasting + adjustment).clamp(0, 1000)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fold::fold;

    #[test]
    fn secrets_are_told_by_their_shape() {
        for text in [
            "我的密码是 hunter2",
            "my password is hunter2",
            "the API key: abc",
            "<SECRET#a1>",
            "卡号 6225 8801 2345 6783 的",
        ] {
            assert!(is_secret(&fold(text)), "{text}");
        }
        for text in [
            "我忘了密码",
            "the pinkie is swollen",
            "每天 5 mg",
            "<PHONE#a1b2>",
        ] {
            assert!(!is_secret(&fold(text)), "{text}");
        }
    }

    #[test]
    fn recalled_text_is_told_by_its_form() {
        let text = "[memory m-12] 对花生过敏\n我头疼\n<memories>\n- x\n</memories>";
        let found: Vec<&str> = echoes(text).into_iter().map(|r| &text[r]).collect();
        assert_eq!(
            found,
            ["[memory m-12] 对花生过敏", "<memories>\n- x\n</memories>"]
        );
    }

    #[test]
    fn off_the_record_is_heard_and_do_not_forget_is_not() {
        for text in [
            "我最近在看抑郁症，别记",
            "off the record, I drink",
            "please don't save this",
        ] {
            assert!(is_off_record(&fold(text)), "{text}");
        }
        for text in [
            "别忘记我的药",
            "I don't remember that",
            "不要记错时间",
            "特别记得",
        ] {
            assert!(!is_off_record(&fold(text)), "{text}");
        }
    }
}
