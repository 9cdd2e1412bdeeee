"""The stages of the pipeline `compliance_review`: may an e-mail be sent, by a policy and the known facts?"""
