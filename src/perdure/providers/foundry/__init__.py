"""Microsoft Foundry's model inference: OpenAI's Chat form less the fields that it lacks.

Azure OpenAI is OpenAI's own form: the adapter `openai-chat` with the provider `azure-openai`.
"""
