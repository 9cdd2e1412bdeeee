"""Rules in scripts of their own: Chinese, Japanese, Korean, Arabic, Hebrew, Hindi, Greek, Thai.

Chinese and Japanese put no spaces between words, and in Japanese, Korean, Hindi and Turkish the verb comes
last; so these are patterns with short gaps. Letters that are written in several ways (the Arabic alef, the
Devanagari nukta) appear in each.
"""

from baton.safety.detector.automata import any_of
from baton.safety.detector.rules import Rule, native_family
from baton.safety.scan import Category


def _near(first: str, second: str, third: str = "", gap: int = 8) -> str:
    """Return the pattern for choices that follow one another within ``gap`` characters."""
    parts = [any_of(part.split()) for part in (first, second, third) if part]
    return f"[^\\n]{{0,{gap}}}".join(parts)


_ZH_DROP = (
    "忽略 忽视 忽視 无视 無視 忘记 忘記 忘掉 不要理会 不要理會 不要遵循 不要遵守"
    " 不要执行 别管 抛开 抛弃 丢弃 跳过 不理会 撤销 绕过 繞過 取代 覆盖 废除 清除"
    " 无需遵守 不再遵守 不用管"
)
_ZH_EARLIER = (
    "之前 先前 以前 上述 上面 以上 前面 此前 所有 一切 原有 原来 原來 全部 你的 您的"
    " 系统 系統 任何 过去 既定 现有 最初 早先"
)
_ZH_ORDERS = (
    "指令 指示 提示 规则 規則 命令 提示词 提示詞 设定 設定 约束 限制 准则 準則 指引 规定 規定 指导 引导 安全策略"
)

CHINESE = native_family(
    Rule(
        "override.zh",
        6,
        patterns=(_near(_ZH_DROP, _ZH_EARLIER, _ZH_ORDERS), _near(_ZH_DROP, _ZH_ORDERS, "之前 以上 上述")),
        squeezable=True,
        group="override",
    ),
    Rule(
        "override.zh_as_a_command",
        4,
        patterns=(
            "[\\n。!！?？,，:：;；.] {0,3}(?:请|請|现在|現在|你必须|你要|务必|立即|首先|,|，|!|！){0,4}"
            + _near(_ZH_DROP, _ZH_EARLIER, _ZH_ORDERS),
        ),
        group="command",
    ),
    Rule(
        "override.zh_things",
        4,
        patterns=(
            _near(
                _ZH_DROP,
                "之前 先前 以上 上述 上面 前面 此前 所有",
                "内容 說明 说明 要求 对话 對話 信息 任务 任務 文字 消息 设置",
                6,
            ),
        ),
        group="override",
    ),
    Rule(
        "disclosure.zh",
        4,
        patterns=(
            _near(
                "显示 顯示 输出 輸出 打印 告诉我 告訴我 透露 泄露 洩露 重复 重複 展示 说出 公开 列出 复述 翻译 给我看",
                "系统提示 系統提示 系统指令 初始指令 提示词 系统消息 系统设定 原始指令 内部指令 隐藏指令",
                gap=12,
            ),
            _near("重复 输出 打印 复述", "以上 上面 前面 之前", "内容 文字 所有 全部 的话"),
        ),
    ),
    Rule(
        "disclosure.zh_hide_from_the_person",
        5,
        patterns=(
            _near(
                "不要 别 勿 不得 禁止 切勿 无需",
                "告诉 告訴 告知 提及 通知 透露 提醒 让",
                "用户 用戶 任何人 使用者 他们 人类 客户",
                4,
            ),
        ),
    ),
    Rule(
        "task.zh_replaced",
        4,
        patterns=(
            _near(
                "你现在是 你現在是 从现在开始 從現在開始 从现在起 從現在起 现在起 从此刻起 你不再是",
                "你 一个 一個 只 必须 扮演 请 将 要 没有 不受",
                gap=3,
            ),
            _near("你的 您的", "新 真正 真实 唯一", "任务是 任務是 指令是 目标是 角色是 使命是 任务：", 4),
            _near("新的 新", "指令 指示 命令", "： : 如下 是", 2),
        ),
    ),
    Rule(
        "jailbreak.zh",
        5,
        patterns=(
            _near(
                "没有任何 没有 沒有 不受 无视 不受任何 摆脱",
                "限制 约束 道德 审查 規則 规则 过滤",
                "ai 人工智能 模型 助手 回答 角色 机器人 的约束 的限制",
                10,
            ),
            "越狱模式|越獄模式|开发者模式(?:已|启)|dan模式|进入(?:开发者|越狱|无限制)模式"
            "|不受限制的(?:ai|人工智能|助手|模型)",
        ),
        category=Category.JAILBREAK,
    ),
)

_JA_EARLIER = (
    "以前 前 前述 上記 上 これまで 先 先程 先ほど 今まで すべて 全て 全部 過去 元 最初"
    " あらゆる システム 既存 従来 与えられた あなた"
)
_JA_ORDERS = "指示 命令 プロンプト ルール 規則 指令 制約 設定 インストラクション ガイドライン 指図 方針"
_JA_DROP = "無視 忘れ 破棄 従わな 従わず 無効 取り消 スキップ 上書き 放棄 守らな 却下"

JAPANESE = native_family(
    Rule("override.ja", 6, patterns=(_near(_JA_EARLIER, _JA_ORDERS, _JA_DROP, 10),), squeezable=True, group="override"),
    Rule(
        "override.ja_as_a_command",
        4,
        patterns=(
            f"{_near(_JA_EARLIER, _JA_ORDERS, _JA_DROP, 10)}(?:して(?:ください|下さい|、|,|。"
            f"|くれ|次|以下|代わり)|せよ|しろ|し、|てください|て下さい|てくれ|ろ|、)",
        ),
        group="command",
    ),
    Rule(
        "disclosure.ja",
        4,
        patterns=(
            _near(
                "システムプロンプト システム指示 初期指示 内部指示 システムメッセージ 元の指示"
                " プロンプト全文 最初の指示",
                "表示 教え 出力 開示 見せ 公開 繰り返 明かし 書き出 翻訳 漏ら",
                gap=12,
            ),
        ),
    ),
    Rule(
        "disclosure.ja_hide_from_the_person",
        5,
        patterns=(
            _near(
                "ユーザー 利用者 誰 人間 顧客",
                "言わない 伝えない 知らせない 教えない 言及しない 報告しない 気づかれ 通知しない 明かさない 知られ",
                gap=12,
            ),
        ),
    ),
    Rule(
        "task.ja_replaced",
        4,
        patterns=(
            _near(
                "あなたは今から あなたはこれから 今からあなたは これからあなたは 今後あなたは ここからは",
                "です として になり 振る舞 従 無視 ハッカー",
                gap=30,
            ),
            _near("新しい 本当の 真の 唯一の", "指示 命令 タスク 任務 役割 目的", "は： : ： です に従", 4),
        ),
    ),
    Rule(
        "jailbreak.ja",
        5,
        patterns=(
            _near(
                "制限 制約 倫理 検閲 フィルター",
                "のない なし なく を受けない に縛られない を無視",
                "ai 人工知能 アシスタント モデル 回答 答え キャラ",
                8,
            ),
            "脱獄モード|開発者モードを?有効",
        ),
        category=Category.JAILBREAK,
    ),
)

KOREAN = native_family(
    Rule(
        "override.ko",
        6,
        patterns=(
            _near(
                "이전 앞선 앞의 위의 위 모든 기존 지금까지 원래 처음 시스템 상기 먼저 과거",
                "지시 명령 지침 프롬프트 규칙 설정 안내 가이드라인 제약 제한",
                "무시 잊 따르지 무효 폐기 취소 건너뛰 우회",
                10,
            ),
            _near("무시 잊어", "이전 앞선 위의 모든 기존", "지시 명령 지침 프롬프트 규칙"),
        ),
        squeezable=True,
        group="override",
    ),
    Rule(
        "override.ko_as_a_command",
        4,
        patterns=(
            _near(
                "이전 앞선 앞의 위의 모든 기존 지금까지 원래",
                "지시 명령 지침 프롬프트 규칙 지시사항",
                "무시하고 무시하세요 무시하십시오 무시해 무시하라 잊고 잊어 잊으세요 잊어버리 따르지 무시한",
                10,
            ),
        ),
        group="command",
    ),
    Rule(
        "disclosure.ko",
        4,
        patterns=(
            _near(
                "시스템 초기 내부 숨겨진 원래", "프롬프트 지침 지시", "보여 출력 알려 공개 말해 반복 표시 누설 번역", 10
            ),
        ),
    ),
    Rule(
        "disclosure.ko_hide_from_the_person",
        5,
        patterns=(
            _near("사용자 누구 고객 아무", "말하지 알리지 언급하지 보고하지 알려주지 모르게 밝히지 통지하지", gap=12),
        ),
    ),
    Rule(
        "task.ko_replaced",
        4,
        patterns=(
            _near("지금부터 이제부터 앞으로 이제", "너는 당신은 넌 당신의 너의", gap=3),
            _near("새로운 진짜 실제 유일한", "지시 명령 임무 작업 역할 목표", "은 는 이다 : 입니다", 2)
            + "[^\\n]{0,4}(?::|다|따르)",
        ),
    ),
    Rule(
        "jailbreak.ko",
        5,
        patterns=(
            _near("제한 제약 윤리 검열 필터", "없는 없이 받지", "ai 인공지능 어시스턴트 모델 답변 대답 챗봇", 8),
            "탈옥 모드|개발자 모드를? ?(?:활성|켜)",
        ),
        category=Category.JAILBREAK,
    ),
)

_AR_DROP = (
    "تجاهل تجاهلي تجاهلوا انس انسَ انسى إنس انسي أهمل اهمل تغاض تغاضى تخط تخطى ألغ الغ"
    " أغفل اغفل تجاوز لا[ ]تتبع لا[ ]تلتزم لا[ ]تنفذ"
)
_AR_ORDERS = (
    "التعليمات تعليمات تعليماتك الأوامر الاوامر أوامر أوامرك الإرشادات الارشادات"
    " التوجيهات توجيهات القواعد قواعد المطالبة الموجه المطالبات القيود الضوابط"
)
_AR_EARLIER = (
    "السابقة السابق أعلاه اعلاه الأصلية الاصلية الأولية الاولية قبل النظام السالفة"
    " المذكورة المعطاة الماضية جميع كل كافة المسبقة الحالية"
)

ARABIC = native_family(
    Rule(
        "override.ar",
        6,
        patterns=(_near(_AR_DROP, _AR_ORDERS, _AR_EARLIER, 14), _near(_AR_DROP, "جميع كل كافة أي", _AR_ORDERS, 6)),
        squeezable=True,
        group="override",
    ),
    Rule(
        "override.ar_as_a_command",
        4,
        patterns=(
            f"[\\n.!?؟،:؛] {{0,3}}(?:من فضلك|الآن|رجاء|يرجى|يجب عليك|عليك)?["
            f" ،]{{0,3}}{_near(_AR_DROP, _AR_ORDERS, _AR_EARLIER, 14)}",
        ),
        group="command",
    ),
    Rule(
        "disclosure.ar",
        4,
        patterns=(
            _near(
                "اعرض أظهر اظهر اطبع اكشف كرر أخبرني اخبرني اكتب أعطني اعطني أفصح",
                "موجه[ ]النظام تعليمات[ ]النظام مطالبة[ ]النظام تعليماتك[ ]الأصلية التعليمات["
                " ]الأولية تعليماتك التعليمات[ ]الداخلية برومبت",
                gap=16,
            ),
        ),
    ),
    Rule(
        "disclosure.ar_hide_from_the_person",
        5,
        patterns=(
            _near(
                "لا[ ]تخبر لا[ ]تخبري لا[ ]تذكر لا[ ]تبلغ لا[ ]تكشف دون[ ]إخبار دون[ ]علم بدون[ ]علم دون[ ]إبلاغ",
                "المستخدم أحد أحدا العميل شخص",
                gap=14,
            ),
        ),
    ),
    Rule(
        "task.ar_replaced",
        4,
        patterns=(
            _near(
                "أنت[ ]الآن انت[ ]الان أنت[ ]الان من[ ]الآن[ ]فصاعد[اًا]* ابتداء[ً]?[ ]من[ ]الآن",
                "لست تعمل سوف يجب ستكون أنت انت تتصرف أجب مساعد نموذج بدون غير روبوت",
                gap=10,
            ),
            _near("مهمتك دورك هدفك", "الجديدة الجديد الحقيقية الحقيقي الوحيدة", "هي هو :", 4),
        ),
    ),
)

_HI_ORDERS = "निर्देश निर्देशों आदेश आदेशों नियम नियमों प्रॉम्प्ट हिदायत हिदायतों दिशानिर्देश दिशा-निर्देश इंस्ट्रक्शन अनुदेश"
_HI_EARLIER = "पिछले पिछली पूर्व पहले सभी ऊपर उपरोक्त पुराने मूल पूर्ववर्ती अपने प्रारंभिक सारे"
_HI_DROP = "अनदेखा नज़रअंदाज नज़रअंदाज नजरअंदाज नज़रअंदाज़ नज़रअंदाज़ उपेक्षा भूल मत[ ]मान इग्नोर छोड़ छोड़ अवहेलना रद्द पालन[ ]न पालन[ ]मत"

HINDI = native_family(
    Rule(
        "override.hi",
        6,
        patterns=(_near(_HI_EARLIER, _HI_ORDERS, _HI_DROP, 16), _near(_HI_DROP, _HI_EARLIER, _HI_ORDERS, 16)),
        group="override",
    ),
    Rule(
        "override.hi_as_a_command",
        4,
        patterns=(
            _near(
                _HI_EARLIER,
                _HI_ORDERS,
                "अनदेखा[ ]कर नज़रअंदाज[ ]कर नज़रअंदाज[ ]कर नजरअंदाज[ ]कर उपेक्षा[ ]कर भूल[ ]जा इग्नोर[ ]कर",
                16,
            ),
        ),
        group="command",
    ),
    Rule("disclosure.hi", 4, patterns=(_near("सिस्टम प्रारंभिक मूल", "प्रॉम्प्ट निर्देश", "दिखा बता प्रकट दोहरा प्रिंट लिख", 14),)),
    Rule(
        "disclosure.hi_hide_from_the_person",
        5,
        patterns=(_near("उपयोगकर्ता यूज़र यूजर किसी", "मत[ ]बता न[ ]बता नहीं[ ]बता सूचित[ ]न जानकारी[ ]न", gap=16),),
    ),
    Rule(
        "task.hi_replaced",
        4,
        patterns=(
            _near("अब[ ]से अब", "आप तुम", "एक हैं हो केवल", 12) + "[^\\n]{0,20}(?:हैं|हो|करें|करो)",
            _near("आपका तुम्हारा", "नया असली वास्तविक", "काम कार्य लक्ष्य उद्देश्य", 4),
        ),
    ),
)

OTHER_SCRIPTS = native_family(
    Rule(
        "override.he",
        6,
        patterns=(
            _near(
                "התעלם התעלמי התעלמו שכח שכחי תשכח תתעלם בטל",
                "הוראות ההוראות הנחיות ההנחיות הפקודות הכללים הפרומפט",
                "קודמות הקודמות קודם לעיל שלך המקוריות המערכת",
                14,
            ),
            _near("התעלם שכח", "כל מכל", "ההוראות ההנחיות הפקודות"),
        ),
        group="override",
    ),
    Rule(
        "override.el",
        6,
        patterns=(
            _near(
                "αγνόησε αγνοήστε αγνοησε ξέχασε ξεχάστε ξεχασε παράβλεψε παραβλέψτε",
                "προηγούμεν προηγουμεν παραπάνω παραπανω όλες ολες όλους αρχικές",
                "οδηγί οδηγι εντολ εντολέ κανόν προτροπ",
                14,
            ),
        ),
        group="override",
    ),
    Rule(
        "override.th",
        6,
        patterns=(
            _near(
                "เพิกเฉย ละเว้น ลืม ไม่ต้องสนใจ ไม่สนใจ ข้าม ยกเลิก อย่าทำตาม",
                "คำสั่ง คำแนะนำ กฎ ข้อกำหนด พรอมต์ คำชี้แจง",
                "ก่อนหน้า ทั้งหมด ข้างต้น เดิม ที่ผ่านมา ด้านบน",
                14,
            ),
        ),
        group="override",
    ),
    Rule(
        "override.fa",
        6,
        patterns=(
            _near("دستورالعمل دستورات دستور راهنما قوانین", "قبلی پیشین بالا فوق اولیه", "نادیده فراموش رها کنار", 14),
            _near("نادیده فراموش", "دستورالعمل دستورات", "قبلی پیشین", 14),
        ),
        group="override",
    ),
    Rule(
        "override.bn",
        6,
        patterns=(_near("পূর্ববর্তী আগের সমস্ত উপরের সব", "নির্দেশ নির্দেশনা নির্দেশাবলী নিয়ম আদেশ", "উপেক্ষা ভুলে অগ্রাহ্য", 16),),
        group="override",
    ),
)

MARKS = native_family(
    Rule(
        "jailbreak.lock_sign",
        5,
        patterns=(r"\[(?:🔓|🔒)[^\n\]]{0,20}(?:jailbreak|classic|developer|normal)|\(🔓",),
        category=Category.JAILBREAK,
    ),
)

SCRIPTS = (MARKS, CHINESE, JAPANESE, KOREAN, ARABIC, HINDI, OTHER_SCRIPTS)
