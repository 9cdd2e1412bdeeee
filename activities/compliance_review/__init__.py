"""The stages of the pipeline `compliance_review`: may an e-mail be sent, by a policy and the known facts?

Only a contract passes from the research to the decision: facts in fixed sentences, each with its source.
"""
